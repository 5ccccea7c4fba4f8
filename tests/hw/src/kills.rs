// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kills clients in the middle of their work and reads the kernel's log.
//!
//! A client that is killed may trigger bug `use-after-close` of the driver (see
//! tests/hw/bugs). This program shows which of its causes occurred. After a complaint
//! the kernel's memory cannot be trusted, so the program ends there.

use std::convert::Infallible;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rocket_uapi::{Deadline, Device};

use crate::busy::RepeatableMatmul;
use crate::check::{Must, NotPassed};
use crate::hold::exported_page;
use crate::kmsg::{Kmsg, is_complaint};

/// A client is killed within so many microseconds after its first matmul.
const MAX_KILL_DELAY_US: u64 = 40_000;
/// The driver drops a finished job's references within 20 ms (docs/driver.md).
const SETTLED: Duration = Duration::from_millis(100);
/// How long a client waits to be killed between two matmuls.
const PAUSE: Duration = Duration::from_secs(60);
/// Time after which the kernel has freed all that it frees late: a killed job after
/// 500 ms.
const LATE: Duration = Duration::from_millis(700);

/// Options of a client that is killed: its device, and when it dies.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientOptions {
    /// The device node
    #[arg(long, default_value = "/dev/accel/accel0")]
    device: PathBuf,
    /// Kill clients between two matmuls, when the driver has released the last
    /// job, instead of at any moment
    #[arg(long)]
    between: bool,
    /// Give each client an exported buffer object, as clients with fences have
    #[arg(long)]
    export: bool,
}

impl ClientOptions {
    /// Repeats one matmul until killed, and prints a line after the first.
    ///
    /// # Errors
    /// When the device or its first job fails.
    pub fn run(&self) -> Result<Infallible, NotPassed> {
        let device = Device::open(&self.device)?;
        let (matmul, mut output) = RepeatableMatmul::new(&device)?;
        let _exported = self.export.then(|| exported_page(&device)).transpose()?;
        let mut first = true;
        loop {
            output = matmul.run(output, 1, Deadline::FOREVER)?;
            if first {
                println!("a matmul");
                io::stdout().flush().must("standard output")?;
                first = false;
            }
            if self.between {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Starts a client in a separate process, and waits for its first matmul.
    fn spawn(&self) -> Result<Child, NotPassed> {
        let program = std::env::current_exe().must("the path of this program")?;
        let mut command = Command::new(program);
        command.args(["--client", "--device"]).arg(&self.device);
        command.args(self.between.then_some("--between"));
        command.args(self.export.then_some("--export"));
        let mut client = command.stdout(Stdio::piped()).spawn().must("a client")?;
        let mut line = String::new();
        if let Some(output) = client.stdout.take() {
            let read = BufReader::new(output).read_line(&mut line);
            read.must("a client's output")?;
        }
        if line.is_empty() {
            client.wait().must("a client's end")?;
            let why = "a client ended before its first matmul";
            return Err(NotPassed::Fail(why.to_owned()));
        }
        Ok(client)
    }

    /// Kills `count` clients, one after the other, at moments that `seed` gives,
    /// until the kernel complains. Returns their number, and the cause of the
    /// complaint: `exported` (an exported object outlived its file) or `late` (a
    /// job's reference did, or a job).
    ///
    /// # Errors
    /// If a client ends by itself, or the kernel's log cannot be read.
    pub fn kill(&self, count: u32, seed: u64) -> Result<(u32, Option<&'static str>), NotPassed> {
        let mut log = Kmsg::from_now()?;
        let mut random = fastrand::Rng::with_seed(seed);
        for killed in 1..=count {
            let mut client = self.spawn()?;
            thread::sleep(if self.between {
                SETTLED
            } else {
                Duration::from_micros(random.u64(..MAX_KILL_DELAY_US))
            });
            client.kill().must("kill")?;
            client.wait().must("a client's end")?;
            thread::sleep(LATE);
            let messages = log.messages()?;
            if messages.iter().any(|message| is_complaint(message)) {
                // The stack shows whether a dma-buf's end was the cause.
                let is_exported = |message: &String| message.contains("dma_buf_release");
                let exported = messages.iter().any(is_exported);
                let cause = if exported { "exported" } else { "late" };
                return Ok((killed, Some(cause)));
            }
        }
        Ok((count, None))
    }
}
