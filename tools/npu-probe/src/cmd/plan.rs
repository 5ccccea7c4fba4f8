// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe plan`: the tiling and predicted time of a matmul.

mod one;

use std::fmt::Write;
use std::num::NonZeroUsize;

use clap::Args;
use npu_matmul::memory::MemoryPlan;
use npu_matmul::plan::{INT4_K_TILE_MAX, WeightPlan};
use npu_matmul::{Plan, PlanError, PlanOptions, Results};
use rocket_uapi::DeviceInfo;
use serde::Serialize;

use crate::bench::to;
use crate::exit::{Failure, Verdict};
use crate::flags::planning::{HERTZ_PER_MHZ, PlanningFlags};
use crate::flags::{DeviceFlags, OperandDtypes, ReportFlags};
use crate::shape::{self, MatmulShape};
use crate::table::{MIB, mib};
use one::PlanReport;

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
    dtype: OperandDtypes,
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
        dtype: args.dtype,
        profile: profile.name.to_string(),
        clock_mhz: profile.machine.clock_hz / HERTZ_PER_MHZ,
        profile_refused,
        fds,
        results,
        cpu_cores: profile.host.cores,
        memory: MemoryReport::new(&weights, fds, max, &options),
        chosen: PlanReport::new(&plan, m, &options),
    })
}

impl Report {
    fn text(&self) -> String {
        let mut text = format!(
            "{}{} {} at {} MHz, {} file descriptor(s); {} CPU cores pack and unpack; all times are \
             modelled\n",
            self.dtype,
            to(self.results),
            self.shape,
            self.clock_mhz,
            self.fds,
            self.cpu_cores
        );
        if self.dtype == OperandDtypes::Int4 {
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
        text + &self.chosen.text() + &self.memory.text()
    }
}

/// Memory of a matmul's weights, computed without a device.
#[derive(Debug, Serialize)]
struct MemoryReport {
    /// Bytes on each file descriptor, whole pages; none if a file descriptor cannot
    /// address its share.
    bytes_per_fd: Option<Vec<u64>>,
    bytes: u64,
    /// Bytes that a file descriptor can address beside its working buffers.
    bytes_per_fd_max: u64,
    /// Memory limit of all weights, if given.
    bytes_max: Option<u64>,
    fits: bool,
    /// Number of weights of this size that fit together.
    fit: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
}

impl MemoryReport {
    /// The report for weights on `fds` file descriptors, of at most `max` bytes in all.
    fn new(weights: &WeightPlan, fds: usize, max: Option<u64>, options: &PlanOptions) -> Self {
        let with = |max| {
            let mut memory = MemoryPlan::for_weights(fds, max, options);
            let added = memory.add(weights);
            (memory, added)
        };
        let (_, fits) = with(max.unwrap_or(u64::MAX));
        // Without a limit on RAM, only addresses limit the weights.
        let (alone, addressed) = with(u64::MAX);
        let bytes_per_fd_max = alone.device_limit();
        let per_fd = || alone.per_device().collect::<Vec<_>>();
        let bytes_per_fd = addressed.is_ok().then(per_fd);
        let (bytes, fit) = match &bytes_per_fd {
            None => (weights.device_bytes(), 0),
            Some(each) => {
                let bytes = each.iter().sum::<u64>();
                let busiest = each.iter().copied().max().unwrap_or(0);
                let of_all = max.map_or(u64::MAX, |max| max / bytes.max(1));
                (bytes, of_all.min(bytes_per_fd_max / busiest.max(1)))
            }
        };
        Self {
            bytes_per_fd,
            bytes,
            bytes_per_fd_max,
            bytes_max: max,
            fits: fits.is_ok(),
            fit,
            why_not: fits.err().map(|error| error.to_string()),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("\nweights  {:.2} MiB", mib(self.bytes));
        if let Some(each) = &self.bytes_per_fd {
            let each: Vec<_> = each.iter().map(|&x| format!("{:.2}", mib(x))).collect();
            let _ = write!(text, ": {} on the file descriptors", each.join(", "));
        }
        let limit = mib(self.bytes_per_fd_max);
        let _ = write!(text, ", which address {limit:.0} MiB of weights each");
        if let Some(max) = self.bytes_max {
            let _ = write!(text, "; {:.0} MiB in all", mib(max));
        }
        text.push('\n');
        let _ = match &self.why_not {
            None => writeln!(text, "  fit      {} times", self.fit),
            Some(why) => writeln!(text, "  do not fit: {why}"),
        };
        text
    }
}
