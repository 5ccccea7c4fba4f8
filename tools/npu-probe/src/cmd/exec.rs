// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe exec`: runs one register program on given memory.

use std::fmt::Write;

use anyhow::anyhow;
use npu_model::{Model, ModelOptions};
use rknpu_chip::ChipOptions;
use rknpu_regcmd::regs::pc;
use rknpu_regcmd::{Register, Word};
use rocket_uapi::Selector;
use serde::Serialize;

use crate::exec::board::BoardError;
use crate::exec::memory::ProgramMemory;
use crate::exec::relocate::RelocatedWord;
use crate::exec::{ProgramRun, board, chip};
use crate::exit::{Failure, Verdict};
use crate::flags::ExecFlags;
use crate::program;

pub(crate) fn run(exec: &ExecFlags) -> Result<Verdict, Failure> {
    let words = program::read(&exec.program)?;
    let mut memory = ProgramMemory::new(&exec.inputs, &exec.outputs, &words, exec.at)
        .map_err(|error| Failure::Usage(error.into()))?;
    let (on, outcome) = match &exec.unsafe_device {
        Some(selector) => on_device(selector, &mut memory, &words)?,
        None => on_chip(exec, &mut memory, &words)?,
    };
    let report = Report::new(on, &words, memory.program, &outcome, exec.trace);
    exec.report.print(&report, || report.text())?;
    memory
        .save(&exec.outputs)
        .map_err(|(file, error)| anyhow!(error).context(format!("cannot write {}", file.display())))
        .map_err(Failure::Output)?;
    if outcome.completed {
        return Ok(Verdict::Pass);
    }
    Err(Failure::Device(anyhow!(
        "the program did not complete: {}",
        outcome.end
    )))
}

/// Runs the program on the model's chip, without a driver.
fn on_chip(
    exec: &ExecFlags,
    memory: &mut ProgramMemory,
    words: &[Word],
) -> Result<(String, ProgramRun), Failure> {
    let usage = |error: anyhow::Error| Failure::Usage(error);
    let model = match &exec.device {
        Some(Selector::Path(path)) => {
            return Err(usage(anyhow!(
                "exec runs on the model's chip; use --unsafe-device {} to run on the device",
                path.display()
            )));
        }
        Some(Selector::ModelWith(options)) => options
            .parse()
            .map_err(|error: npu_model::OptionError| usage(error.into()))?,
        Some(Selector::Auto | Selector::Model) | None => ModelOptions::default(),
    };
    let options = ChipOptions {
        level: exec.level.map_or(model.level, Into::into),
        contested: model.contested,
        machine: model.machine,
        ..ChipOptions::default()
    };
    // As many as a program can have.
    let count = u32::try_from(words.len()).unwrap_or(u32::MAX);
    let (core, cores) = (exec.core, model.cores);
    if core >= cores {
        return Err(usage(chip::NoCore { core, cores }.into()));
    }
    let budget = model.driver.job_limit;
    let outcome = chip::run(memory, count, &options, core, budget);
    Ok((
        format!("core {} of the software model's chip", exec.core),
        outcome,
    ))
}

/// Runs the program on a device, through its driver.
fn on_device(
    selector: &Selector,
    memory: &mut ProgramMemory,
    words: &[Word],
) -> Result<(String, ProgramRun), Failure> {
    if *selector == Selector::Auto {
        return Err(Failure::Usage(anyhow!(
            "--unsafe-device needs the path of a device, or `model`"
        )));
    }
    let opened = super::open_selected(selector, |_| ())?;
    let mut outcome = board::run(&opened.device, memory, words).map_err(|error| match error {
        BoardError::Length { .. } | BoardError::Refused { .. } => Failure::Usage(error.into()),
        BoardError::Device { .. } => Failure::Device(error.into()),
    })?;
    let events = opened.model.as_deref().map(Model::events);
    let events = events.unwrap_or_default();
    outcome.events = events.iter().map(ToString::to_string).collect();
    Ok((opened.device.info().name, outcome))
}

/// The report of a run, which is printed as text or as JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    on: String,
    words: usize,
    /// IOVA of the program's first word, in hexadecimal.
    program: String,
    completed: bool,
    end: &'a str,
    /// PC.INTERRUPT_RAW_STATUS, where it can be seen.
    interrupts: Option<u32>,
    /// Modelled device time, nanoseconds.
    modelled_ns: Option<u64>,
    /// Buffers that the kernel moved: requested address, actual address.
    moved: &'a [(u32, u32)],
    changed_words: &'a [RelocatedWord],
    events: &'a [String],
    /// With `--trace`.
    accesses: Option<Vec<AccessReport>>,
}

#[derive(Debug, Serialize)]
struct AccessReport {
    master: String,
    direction: String,
    start: u64,
    end: u64,
}

impl<'a> Report<'a> {
    fn new(on: String, words: &[Word], program: u32, outcome: &'a ProgramRun, trace: bool) -> Self {
        let accesses = outcome.accesses.iter().map(|access| AccessReport {
            master: access.master.to_string(),
            direction: format!("{:?}", access.direction),
            start: access.range.start,
            end: access.range.end,
        });
        let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos()).ok();
        Self {
            on,
            words: words.len(),
            program: format!("{program:#010x}"),
            completed: outcome.completed,
            end: &outcome.end,
            interrupts: outcome.raw_status,
            modelled_ns: outcome.device_time.and_then(nanoseconds),
            moved: &outcome.moved,
            changed_words: &outcome.changes,
            events: &outcome.events,
            accesses: trace.then(|| accesses.collect()),
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "device     {}\nprogram    {} words, at {}\n",
            self.on, self.words, self.program
        );
        let mut line = |name: &str, what: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:10} {what}");
        };
        for (from, to) in self.moved {
            line(
                "moved",
                format!("the buffer for {from:#010x} is at {to:#010x}"),
            );
        }
        for RelocatedWord {
            word,
            register,
            from,
            to,
        } in self.changed_words
        {
            line(
                "changed",
                format!("word {word}: {register} {from:#010x} -> {to:#010x}"),
            );
        }
        for access in self.accesses.iter().flatten() {
            let AccessReport {
                master,
                direction,
                start,
                end,
            } = access;
            line(
                "access",
                format!(
                    "{master:9} {direction:5} {start:#010x}..{end:#010x}, {} bytes",
                    end - start
                ),
            );
        }
        for event in self.events {
            line("event", event.clone());
        }
        if let Some(raw) = self.interrupts {
            line("interrupts", interrupts(raw));
        }
        if let Some(ns) = self.modelled_ns {
            let us = std::time::Duration::from_nanos(ns).as_secs_f64() * 1e6;
            line("time", format!("{us:.3} us of modelled device time"));
        }
        line("end", self.end.to_owned());
        text
    }
}

/// The status with its fields, as the disassembly shows them.
fn interrupts(raw: u32) -> String {
    let mut text = format!("{raw:#07x}");
    for field in pc::InterruptRawStatus::INFO.fields {
        match field.extract(raw) {
            0 => {}
            value => {
                let _ = write!(text, " {}={value}", field.name);
            }
        }
    }
    text
}
