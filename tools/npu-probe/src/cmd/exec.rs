// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe exec`: runs one register program on given memory.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use npu_model::{Model, ModelOptions};
use rknpu_chip::ChipOptions;
use rknpu_regcmd::regs::pc;
use rknpu_regcmd::{Register, Word};
use rocket_uapi::Selector;

use crate::exec::memory::ProgramMemory;
use crate::exec::ranges::{BufferFile, OutputRegion, iova};
use crate::exec::relocate::RelocatedWord;
use crate::exec::{AccessReport, ProgramRun, board, chip};
use crate::exit::{Failure, Verdict};
use crate::flags::ReportFlags;
use crate::program;

#[derive(Debug, Args)]
pub(crate) struct ExecFlags {
    /// File with the program: assembler text, hexadecimal words or binary words, like
    /// `decode`; `-` is standard input
    program: PathBuf,

    /// Memory with the content of a file; with `:rw` the file is updated afterwards
    ///
    /// The address is a multiple of 4096, decimal or hexadecimal with 0x. The last page is
    /// filled with zeros beyond the file.
    #[arg(long = "bo", value_name = "IOVA:FILE[:rw]")]
    inputs: Vec<BufferFile>,

    /// Memory to write to a file afterwards; starts with zeros where no --bo is
    #[arg(long = "out", value_name = "IOVA:LEN:FILE")]
    outputs: Vec<OutputRegion>,

    /// Address of the program [default: the highest free pages]
    #[arg(long, value_name = "IOVA", value_parser = iova)]
    at: Option<u32>,

    /// Core that runs the program
    #[arg(long, default_value_t = 0)]
    core: u32,

    /// Print the memory accesses of each memory master
    #[arg(long)]
    trace: bool,

    /// Run the program on this device instead of the model's chip
    ///
    /// The program can hang a core, or leave register values that disturb the next user of the
    /// NPU. Nothing can check that beforehand. The kernel chooses the addresses of buffers.
    /// The program's address registers are changed to match; if that is not possible, nothing
    /// runs. `model` is the software model with its driver.
    #[arg(long, value_name = "PATH|model",
        conflicts_with_all = ["core", "trace", "at", "device"])]
    unsafe_device: Option<Selector>,

    /// Software model to run on, with its options (docs/model.md)
    #[arg(long, value_name = "model[:OPTIONS]")]
    device: Option<Selector>,

    #[command(flatten)]
    report: ReportFlags,
}

pub(crate) fn run(exec: &ExecFlags) -> Result<Verdict, Failure> {
    let words = program::read(&exec.program)?;
    let mut memory =
        ProgramMemory::new(&exec.inputs, &exec.outputs, &words, exec.at).map_err(Failure::Usage)?;
    let mut run = match &exec.unsafe_device {
        Some(selector) => on_device(selector, &mut memory, &words)?,
        None => on_chip(exec, &mut memory, &words)?,
    };
    run.words = words.len();
    run.program = format!("{:#010x}", memory.program);
    run.accesses = run.accesses.filter(|_| exec.trace);
    exec.report.print(&run, || text(&run))?;
    memory.save()?;
    if run.completed {
        return Ok(Verdict::Pass);
    }
    let end = run.end;
    Err(Failure::Device(anyhow!(
        "the program did not complete: {end}"
    )))
}

/// Runs the program on the model's chip, without a driver.
fn on_chip(
    exec: &ExecFlags,
    memory: &mut ProgramMemory,
    words: &[Word],
) -> Result<ProgramRun, Failure> {
    let model = match &exec.device {
        Some(Selector::Path(path)) => {
            return Err(Failure::Usage(anyhow!(
                "exec runs on the model's chip; use --unsafe-device {} to run on the device",
                path.display()
            )));
        }
        Some(Selector::ModelWith(options)) => options
            .parse()
            .map_err(|error: npu_model::OptionError| Failure::Usage(error.into()))?,
        Some(Selector::Auto | Selector::Model) | None => ModelOptions::default(),
    };
    let options = ChipOptions {
        level: model.level,
        contested: model.contested,
        machine: model.machine,
    };
    // A program cannot have more words than u32 counts.
    let count = u32::try_from(words.len()).unwrap_or(u32::MAX);
    let (core, cores) = (exec.core, model.cores);
    if core >= cores {
        return Err(Failure::Usage(anyhow!(
            "no core {core}: this chip has {cores} cores, counted from 0"
        )));
    }
    let budget = model.driver.job_limit;
    Ok(ProgramRun {
        on: format!("core {core} of the software model's chip"),
        ..chip::run(memory, count, &options, core, budget)
    })
}

/// Runs the program on a device, through its driver.
fn on_device(
    selector: &Selector,
    memory: &mut ProgramMemory,
    words: &[Word],
) -> Result<ProgramRun, Failure> {
    if *selector == Selector::Auto {
        return Err(Failure::Usage(anyhow!(
            "--unsafe-device needs the path of a device, or `model`"
        )));
    }
    let opened = super::open_selected(selector, |_| ())?;
    let run = board::run(&opened.device, memory, words)?;
    let events = opened.model.as_deref().map(Model::events);
    Ok(ProgramRun {
        on: opened.device.info().name,
        events: events.iter().flatten().map(ToString::to_string).collect(),
        ..run
    })
}

fn text(run: &ProgramRun) -> String {
    let (on, words, program) = (&run.on, run.words, &run.program);
    let mut text = format!("device     {on}\nprogram    {words} words, at {program}\n");
    let mut line = |name: &str, what: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:10} {what}");
    };
    for (from, to) in &run.moved {
        let moved = format!("the buffer for {from:#010x} is at {to:#010x}");
        line("moved", moved);
    }
    for change in &run.changed_words {
        let RelocatedWord { word, from, to, .. } = change;
        let values = format!("{} {from:#010x} -> {to:#010x}", change.register);
        line("changed", format!("word {word}: {values}"));
    }
    for access in run.accesses.iter().flatten() {
        let AccessReport { start, end, .. } = access;
        let (who, how) = (&access.master, &access.direction);
        let range = format!("{start:#010x}..{end:#010x}, {} bytes", end - start);
        line("access", format!("{who:9} {how:5} {range}"));
    }
    for event in &run.events {
        line("event", event.clone());
    }
    if let Some(raw) = run.interrupts {
        line("interrupts", interrupts(raw));
    }
    if let Some(ns) = run.modelled_ns {
        let us = std::time::Duration::from_nanos(ns).as_secs_f64() * 1e6;
        line("time", format!("{us:.3} us of modelled device time"));
    }
    line("end", run.end.clone());
    text
}

/// The interrupt status and its fields, as the disassembly shows them.
fn interrupts(raw: u32) -> String {
    let fields = pc::InterruptRawStatus::INFO.fields.iter();
    let values = fields.map(|field| (field.name, field.extract(raw)));
    let set = values.filter(|(_, value)| *value != 0);
    let texts = set.map(|(name, value)| format!(" {name}={value}"));
    format!("{raw:#07x}{}", texts.collect::<String>())
}
