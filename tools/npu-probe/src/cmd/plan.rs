// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe plan`: the tiling and predicted time of a matmul.

mod memory;
mod one;

use std::fmt::Write;
use std::num::NonZeroUsize;

use clap::Args;
use npu_matmul::plan::{INT4_K_TILE_MAX, WeightPlan};
use npu_matmul::{Dtype, Plan, PlanError, PlanOptions, Results};
use rocket_uapi::DeviceInfo;
use serde::Serialize;

use crate::bench::to;
use crate::exit::{Failure, Verdict};
use crate::flags::planning::{HERTZ_PER_MHZ, PlanningFlags};
use crate::flags::{DeviceFlags, OperandDtypes, ReportFlags};
use crate::shape::{self, MatmulShape};
use crate::table::MIB;
use memory::MemoryReport;
use one::PlanReport;

/// Options of `plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanFlags {
    #[arg(value_name = shape::FORM, help = shape::HELP)]
    shape: MatmulShape,

    /// Precision of the operands
    #[arg(long, default_value = "int8")]
    dtype: OperandDtypes,

    /// File descriptors to spread the columns over [default: one for each core]
    #[arg(long, value_name = "NUMBER")]
    fds: Option<NonZeroUsize>,

    /// Depth of a K tile, a multiple of 32 [default: the fastest]
    #[arg(long, value_name = "DEPTH")]
    k_tile: Option<NonZeroUsize>,

    /// Memory limit for weights on all file descriptors together, MiB [default: none]
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,

    #[command(flatten)]
    planning: PlanningFlags,

    #[command(flatten)]
    device: DeviceFlags,

    #[command(flatten)]
    report: ReportFlags,
}

/// Default number of file descriptors of a plan: one per core.
const DEFAULT_FDS: usize = 3;

/// The report of `plan`, printed as text or as JSON.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    shape: MatmulShape,
    dtype: String,
    /// Name of the board's profile, and its NPU clock.
    profile: String,
    clock_mhz: u64,
    /// Why an existing profile is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile_refused: Option<String>,
    fds: usize,
    results: Results,
    /// Cortex-A76 cores that pack and unpack.
    cpu_cores: u32,
    #[serde(skip)]
    is_int4: bool,
    memory: MemoryReport,
    chosen: PlanReport,
}

pub(crate) fn run(args: &PlanFlags) -> Result<Verdict, Failure> {
    args.shape.check_plannable()?;
    let info = super::open(&args.device)?.device.info();
    let report = report(args, &info).map_err(|error| Failure::Usage(error.into()))?;
    args.report.print(&report, || report.text())?;
    Ok(Verdict::Pass)
}

fn report(args: &PlanFlags, info: &DeviceInfo) -> Result<Report, PlanError> {
    let MatmulShape { m, k, n } = args.shape;
    let dtype = args.dtype.dtype();
    let fds = args.fds.map_or(DEFAULT_FDS, NonZeroUsize::get);
    let (options, profile_refused) = args.planning.machine.options(info);
    let options = PlanOptions {
        k_tile: args.k_tile.map(NonZeroUsize::get),
        batch_rows: m,
        ..options
    };
    let weights = WeightPlan::new(dtype, n, k, fds, &options)?;
    let results = args.planning.results(dtype);
    let plan = Plan::with_results(&weights, m, results, &options)?;
    let profile = &options.profile;
    let max = args.memory.map(|mib| mib.saturating_mul(MIB as u64));
    Ok(Report {
        shape: args.shape,
        dtype: args.dtype.to_string(),
        profile: profile.name.to_string(),
        clock_mhz: profile.machine.clock_hz / HERTZ_PER_MHZ,
        profile_refused,
        fds,
        results,
        cpu_cores: profile.host.cores,
        is_int4: dtype == Dtype::Int4,
        memory: MemoryReport::new(&weights, fds, max, &options),
        chosen: PlanReport::new(&plan, m, &options),
    })
}

impl Report {
    fn text(&self) -> String {
        let Self {
            shape,
            dtype,
            clock_mhz,
            fds,
            ..
        } = self;
        let mut text = format!(
            "{dtype}{} {shape} at {clock_mhz} MHz, {fds} file descriptor(s); \
             {} CPU cores pack and unpack; all times are modelled\n",
            to(self.results),
            self.cpu_cores
        );
        if self.is_int4 {
            let _ = writeln!(
                text,
                "K tiles of {INT4_K_TILE_MAX} at most, safe for any int4 weights; loaded weights may \
                 allow deeper ones"
            );
        }
        let _ = writeln!(text, "profile: {}", self.profile);
        if let Some(reason) = &self.profile_refused {
            let _ = writeln!(text, "{reason}");
        }
        self.chosen.write(&mut text);
        text.push_str(&self.memory.text());
        text
    }
}
