// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe bench`: measures the speed of matmuls, or predicts it.

use std::num::NonZeroUsize;

use clap::Args;
use npu_matmul::{PlanOptions, Threads};

use crate::bench::{BenchReport, MeasuredMatmul, MeasuringConditions};
use crate::exit::{Failure, Verdict};
use crate::flags::planning::PlanningFlags;
use crate::flags::{DeviceFlags, OperandDtypes, ReportFlags};
use crate::progress::ProgressLine;
use crate::report::DeviceReport;
use crate::shape::{self, MatmulShape};
use crate::{matmul, output};

/// A projection of an 8B transformer for a prompt of 512 tokens.
const DEFAULT_SHAPE: &str = "512x4096x4096";

#[derive(Debug, Args)]
pub(crate) struct BenchFlags {
    #[arg(value_name = shape::FORM, help = shape::HELP, default_value = DEFAULT_SHAPE)]
    pub(super) shapes: Vec<MatmulShape>,

    /// Run nothing: show the tiling and the predicted time
    ///
    /// Times are those of the timing model, with the profile of the board.
    #[arg(long, conflicts_with_all = ["repeat", "threads"])]
    plan: bool,

    /// Depth of a K tile, a multiple of 32 [default: the fastest]
    #[arg(long, value_name = "DEPTH", requires = "plan")]
    pub(super) k_tile: Option<NonZeroUsize>,

    /// Memory limit for weights on all file descriptors together, MiB [default: none]
    #[arg(long, value_name = "MIB", requires = "plan")]
    pub(super) memory: Option<u64>,

    /// Precisions of the operands [default: int8,fp16,int4]
    #[arg(long, value_delimiter = ',')]
    dtype: Vec<OperandDtypes>,

    /// Matmuls to measure, after one to warm up
    #[arg(long, value_name = "TIMES", default_value = "5")]
    repeat: NonZeroUsize,

    /// File descriptors to spread the work over [default: one for each core]
    #[arg(long, value_name = "NUMBER")]
    pub(super) fds: Option<NonZeroUsize>,

    /// CPU threads, on the fastest CPUs first: a number or auto, then ,pin (fixed to one CPU
    /// each) or ,free; the variable NPU_THREADS does the same [default: one for each CPU,
    /// free]
    #[arg(long)]
    threads: Option<Threads>,

    #[command(flatten)]
    pub(super) planning: PlanningFlags,

    #[command(flatten)]
    pub(super) device: DeviceFlags,

    #[command(flatten)]
    pub(super) report: ReportFlags,
}

impl BenchFlags {
    /// The requested precisions.
    pub(super) fn dtypes(&self) -> &[OperandDtypes] {
        match self.dtype[..] {
            [] => &OperandDtypes::PLAIN,
            _ => &self.dtype,
        }
    }
}

pub(crate) fn run(args: &BenchFlags) -> Result<Verdict, Failure> {
    if args.plan {
        return super::plan::run(args);
    }
    let opened = super::open(&args.device)?;
    let info = opened.device.info();
    let planning = &args.planning;
    let (options, refused) = planning.machine.options(&info);
    let fds = args.fds.map_or(info.files(), NonZeroUsize::get);
    let device = DeviceReport::new(info, opened.why);
    let is_model = device.is_model;
    let threads = match args.threads {
        Some(threads) => Some(threads),
        None => Threads::from_env().map_err(|error| Failure::Usage(error.into()))?,
    };
    let kinds = args.dtypes();
    let profile = &options.profile;
    let mut report = BenchReport {
        conditions: MeasuringConditions::read(device, profile, refused, fds, threads),
        measurements: Vec::new(),
    };
    let steps = args.shapes.len() * kinds.len();
    let progress = ProgressLine::of(steps as u64, "matmuls");
    let say = |text: &str| progress.aside(|| args.report.say(text));
    say(&report.conditions.text())?;
    for &shape in &args.shapes {
        for &kind in kinds {
            progress.doing(&format!("{kind} {shape}"));
            let dtype = kind.dtype();
            let case = MeasuredMatmul {
                kind,
                results: planning.results(dtype),
                shape,
                repeat: args.repeat.get(),
                is_model,
            };
            let options = PlanOptions {
                batch_rows: shape.m,
                ..options.clone()
            };
            let engine = matmul::engine(&opened.device, fds, options, threads)?;
            let measurement = case.measure(&engine, profile)?;
            progress.step();
            say(&measurement.text())?;
            report.measurements.push(measurement);
        }
    }
    drop(progress);
    if args.report.json {
        output::print_json(&report)?;
    }
    Ok(Verdict::Pass)
}
