// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe bench`: how fast products are.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use npu_matmul::{Engine, PlanOptions, Threads};
use rknpu_regcmd::timing::Machine;
use rocket_uapi::DevicePool;

use crate::bench::{Case, Conditions, Report, Shape};
use crate::exit::{Failure, Verdict};
use crate::flags::{Dtype, Flags};
use crate::output;
use crate::report::DeviceReport;

/// A projection of an 8B transformer for a prompt of 512 tokens.
const DEFAULT_SHAPE: Shape = Shape {
    m: 512,
    k: 4096,
    n: 4096,
};

const HERTZ_PER_MHZ: u64 = 1_000_000;

/// Options of `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchFlags {
    /// Rows of A, depth, columns of the result, such as 512x4096x4096, which is
    /// the default
    #[arg(value_name = "MxKxN")]
    shapes: Vec<Shape>,

    /// Precisions of the operands [default: all]
    #[arg(long, value_delimiter = ',')]
    dtype: Vec<Dtype>,

    /// Products to measure, after one that warms up
    #[arg(long, value_name = "TIMES", default_value = "5")]
    repeat: NonZeroUsize,

    /// File descriptors to spread the work over [default: one for each core]
    #[arg(long, value_name = "NUMBER")]
    fds: Option<NonZeroUsize>,

    /// Threads for the CPU's share, the fastest CPUs first: a number or auto,
    /// with ,pin or ,free behind it to keep each on one CPU or not; the
    /// environment's NPU_THREADS says the same [default: one for each CPU, free]
    #[arg(long)]
    threads: Option<Threads>,

    /// Clock of the NPU, MHz, for plans, bounds and modelled times
    ///
    /// The driver does not tell it. Mainline kernels leave it at 200; see
    /// `npu` in /sys/kernel/debug/clk/clk_summary.
    #[arg(long, value_name = "MHZ", default_value = "200")]
    clock: NonZeroU64,

    /// Draw what was reached under the roof of compute and memory into this
    /// file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(crate) fn run(flags: &Flags, args: &BenchFlags) -> Result<Verdict, Failure> {
    let opened = super::open(flags)?;
    let device = DeviceReport::new(opened.device.info(), opened.why);
    let is_model = device.is_model;
    let cores = usize::try_from(device.cores).unwrap_or(1).max(1);
    let fds = args.fds.map_or(cores, NonZeroUsize::get);
    let clock = args.clock.get();
    let threads = match args.threads {
        Some(threads) => Some(threads),
        None => Threads::from_env().map_err(|error| Failure::Usage(error.into()))?,
    };
    let machine = Machine::RK3588.at_clock(clock.saturating_mul(HERTZ_PER_MHZ));
    let mut report = Report {
        conditions: Conditions::look(device, clock, fds, threads),
        measurements: Vec::new(),
    };
    let say = |text: &str| match flags.json {
        true => Ok(()),
        false => output::print(text),
    };
    say(&report.conditions.text())?;
    let shapes = match args.shapes[..] {
        [] => &[DEFAULT_SHAPE][..],
        _ => &args.shapes,
    };
    let dtypes = match args.dtype[..] {
        [] => &[Dtype::Int8, Dtype::Fp16, Dtype::Int4][..],
        _ => &args.dtype,
    };
    for &shape in shapes {
        let pool = DevicePool::open(&opened.device, fds)
            .context("cannot open the device again")
            .map_err(Failure::Device)?;
        let mut options = PlanOptions::default();
        options.conditions.machine = machine;
        options.conditions.rows = shape.m;
        let mut engine = Engine::with_options(pool, options)?;
        if let Some(threads) = threads {
            engine = engine.with_threads(threads)?;
        }
        for dtype in dtypes {
            let case = Case {
                precision: dtype.precision(),
                shape,
                repeat: args.repeat.get(),
                machine,
                is_model,
            };
            let measurement = case.measure(&engine)?;
            say(&measurement.text())?;
            report.measurements.push(measurement);
        }
    }
    if flags.json {
        output::print_json(&report)?;
    }
    if let Some(file) = &args.svg {
        report.draw(file, &machine)?;
    }
    Ok(Verdict::Pass)
}
