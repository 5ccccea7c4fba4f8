// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to QEMU: stop and continue the guest (QMP), and move the interrupt
//! lines (its test protocol, qtest, which works with any accelerator).
//!
//! Nothing here may run on a thread of one of the guest's processors: QEMU's
//! main loop answers, and may be waiting for that processor.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::Deserialize;
use serde_json::{Value, json};

/// QEMU's type name of the guest's interrupt controller.
const GIC: &str = "child<arm-gicv3>";

/// QEMU's path of the machine's parts that have no name.
const UNATTACHED: &str = "/machine/unattached";

/// A QMP connection.
#[derive(Debug)]
pub(crate) struct Monitor(BufReader<UnixStream>);

/// The lines of the interrupt controller, once QEMU has named it, or `None` if it
/// could not.
pub(crate) type Lines = Arc<OnceLock<Option<Interrupts>>>;

/// The lines of the interrupt controller.
#[derive(Debug)]
pub(crate) struct Interrupts {
    stream: Mutex<BufReader<UnixStream>>,
    /// The controller's path in QEMU's object tree.
    controller: String,
}

/// A line of QMP: an answer with one of these fields, or an event with neither.
#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "return")]
    result: Option<Value>,
    error: Option<Value>,
}

/// An entry of `qom-list`.
#[derive(Deserialize)]
struct Property {
    name: String,
    #[serde(rename = "type")]
    ty: String,
}

impl Monitor {
    /// Connects to QEMU, once its main loop runs.
    pub(crate) fn connect(stream: UnixStream) -> io::Result<Self> {
        let mut monitor = Self(BufReader::new(stream));
        line(&mut monitor.0)?;
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Stops the guest, its clocks included, or continues it.
    pub(crate) fn freeze(&mut self, frozen: bool) -> io::Result<()> {
        let command = if frozen { "stop" } else { "cont" };
        self.execute(command, &json!({})).map(drop)
    }

    /// Finds the interrupt controller's path by type: its number changes with
    /// the number of processors.
    pub(crate) fn controller(&mut self) -> io::Result<String> {
        let children = self.execute("qom-list", &json!({ "path": UNATTACHED }))?;
        let children: Vec<Property> = serde_json::from_value(children)?;
        children
            .iter()
            .find(|property| property.ty == GIC)
            .map(|property| format!("{UNATTACHED}/{}", property.name))
            .ok_or_else(|| io::Error::other("the machine has no GICv3"))
    }

    fn execute(&mut self, command: &str, arguments: &Value) -> io::Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.0.get_mut(), "{request}")?;
        loop {
            let answer: Answer = serde_json::from_str(&line(&mut self.0)?)?;
            if let Some(error) = answer.error {
                return Err(io::Error::other(format!("QEMU refuses {command}: {error}")));
            }
            if let Some(result) = answer.result {
                return Ok(result);
            }
        }
    }
}

impl Interrupts {
    pub(crate) fn new(stream: UnixStream, controller: String) -> Self {
        Self {
            stream: Mutex::new(BufReader::new(stream)),
            controller,
        }
    }

    /// Raises the shared peripheral interrupt and lowers it again.
    ///
    /// The board's line is level-triggered. Here the device tree declares
    /// rising edges: the driver lowers its line by a register write, and the
    /// line could follow only after a round trip through QEMU's main loop.
    /// Until then the same interrupt would arrive some hundred times.
    pub(crate) fn pulse(&self, interrupt: u32) -> io::Result<()> {
        let line_of = format!("set_irq_in {} unnamed-gpio-in {interrupt}", self.controller);
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let request = format!("{line_of} 1\n{line_of} 0\n");
        stream.get_mut().write_all(request.as_bytes())?;
        for _ in 0..2 {
            let answer = line(&mut *stream)?;
            if answer.trim() != "OK" {
                let answer = format!("QEMU refuses an interrupt: {answer}");
                return Err(io::Error::other(answer));
            }
        }
        Ok(())
    }
}

/// Reports an error of a connection to QEMU, unless QEMU ended.
pub(crate) fn report_error(outcome: io::Result<()>) {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    if let Err(error) = outcome
        && !matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
    {
        eprintln!("npu: {error}");
    }
}

fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream whose other end has sent `answers`.
    fn answering(answers: &str) -> (UnixStream, UnixStream) {
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(answers.as_bytes()).unwrap();
        (here, there)
    }

    #[test]
    fn events_between_answers_are_no_answers() {
        let (stream, _there) = answering(concat!(
            "{\"QMP\": {}}\n{\"return\": {}}\n",
            "{\"event\": \"STOP\", \"data\": {}}\n{\"return\": {}}\n",
            "{\"error\": {\"desc\": \"no\"}}\n",
        ));
        let mut monitor = Monitor::connect(stream).unwrap();
        monitor.freeze(true).unwrap();
        let error = monitor.freeze(false).unwrap_err().to_string();
        assert!(error.contains("cont"), "{error}");
        assert!(error.contains("no"), "{error}");
    }

    #[test]
    fn the_controller_is_found_by_its_type() {
        let (stream, _there) = answering(concat!(
            "{\"QMP\": {}}\n{\"return\": {}}\n{\"return\": [",
            "{\"name\": \"device[0]\", \"type\": \"child<cortex-a76-arm-cpu>\"},",
            "{\"name\": \"device[1]\", \"type\": \"child<arm-gicv3>\"}]}\n",
            "{\"return\": []}\n",
        ));
        let mut monitor = Monitor::connect(stream).unwrap();
        let found = monitor.controller().unwrap();
        assert_eq!(found, "/machine/unattached/device[1]");
        assert!(monitor.controller().is_err());
    }

    #[test]
    fn a_pulse_is_two_commands_and_wants_two_answers() {
        let (stream, there) = answering("OK\nOK\nFAIL\n");
        let interrupts = Interrupts::new(stream, "/gic".to_owned());
        interrupts.pulse(110).unwrap();
        let mut sent = BufReader::new(there);
        for level in ["1", "0"] {
            let wanted = format!("set_irq_in /gic unnamed-gpio-in 110 {level}\n");
            assert_eq!(line(&mut sent).unwrap(), wanted);
        }
        assert!(interrupts.pulse(110).is_err());
    }

    #[test]
    fn the_end_of_qemu_is_an_error() {
        let (stream, there) = answering("{\"QMP\": {}}\n");
        drop(there);
        assert!(Monitor::connect(stream).is_err());
    }
}
