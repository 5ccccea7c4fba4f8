// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe plan`: how a product would be cut, and what it would take.

mod memory;
mod one;

use std::fmt::Write;
use std::num::NonZeroUsize;

use npu_matmul::plan::{Candidate, INT4_K_TILE_MAX, candidates, cheapest};
use npu_matmul::{Dtype, Plan, PlanError, PlanOptions, Results};
use rocket_uapi::DeviceInfo;
use serde::Serialize;

use crate::bench::to;
use crate::exit::{Failure, Verdict};
use crate::flags::PlanFlags;
use crate::flags::planning::HERTZ_PER_MHZ;
use crate::int4::of_int4;
use crate::shape::ProductShape;
use crate::table::MIB;
use memory::MemoryReport;
use one::PlanReport;

/// File descriptors of a plan where none are given: one for each core.
const DEFAULT_FDS: usize = 3;

/// The report of `plan`, which is printed as text or as JSON.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    shape: ProductShape,
    dtype: String,
    /// Name of the board's profile, and its clock of the NPU.
    profile: String,
    clock_mhz: u64,
    /// Why the profile that there is is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile_refused: Option<String>,
    fds: usize,
    results: Results,
    /// Cortex-A76 that pack and unpack.
    cpu_cores: u32,
    /// Of int4: how deep a K tile the weights are taken to allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    int4_depth: Option<usize>,
    /// What it took, if it was measured to be the fastest; on the software model by
    /// modelled time.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_ns: Option<u64>,
    /// Memory that the weights of the chosen plan take.
    memory: MemoryReport,
    chosen: PlanReport,
    /// The best plan that does not cut K, and the best one that does.
    whole_k: Option<PlanReport>,
    cut_k: Option<PlanReport>,
}

pub(crate) fn run(args: &PlanFlags) -> Result<Verdict, Failure> {
    args.shape.check_plannable()?;
    let info = super::open(&args.device)?.device.info();
    let report = report(args, &info).map_err(|error| Failure::Usage(error.into()))?;
    args.report.print(&report, || report.text())?;
    Ok(Verdict::Pass)
}

fn report(args: &PlanFlags, info: &DeviceInfo) -> Result<Report, PlanError> {
    let ProductShape { m, k, n } = args.shape;
    let dtype = args.dtype.dtype();
    let fds = args.fds.map_or(DEFAULT_FDS, NonZeroUsize::get);
    let (options, profile_refused) = args.planning.machine.options(info);
    let options = PlanOptions {
        k_tile: args.k_tile.map(NonZeroUsize::get),
        conditions: args.planning.conditions(dtype, m),
        ..options
    };
    let options = match args.planning.int4_depth(dtype, k) {
        Some(depth) => of_int4(&options, n, k, fds, depth)?,
        None => options,
    };
    let of = |candidate: &Candidate| PlanReport::new(candidate, m, &options);
    let all = candidates(dtype, n, k, fds, &options)?;
    let best = |whole: bool| {
        let mut of_kind = all.clone();
        of_kind.retain(|candidate| (candidate.weights.k_tile_count() == 1) == whole);
        cheapest(of_kind).as_ref().map(of).transpose()
    };
    let weights = npu_matmul::plan::WeightPlan::new(dtype, n, k, fds, &options)?;
    let chosen = Candidate::new(weights, &options)?;
    let results = options.conditions.results;
    let plan = Plan::with_results(&chosen.weights, m, results, &options)?;
    let profile = &options.profile;
    let followed = profile.followed_by(&plan, results);
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
        int4_depth: (dtype == Dtype::Int4).then_some(chosen.weights.k_tile_max),
        measured_ns: followed.map(|plan| plan.measured_ns),
        memory: MemoryReport::new(&chosen.weights, fds, max, &options),
        chosen: of(&chosen)?,
        whole_k: best(true)?,
        cut_k: best(false)?,
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
        if let Some(depth) = self.int4_depth {
            let _ = writeln!(
                text,
                "weights that allow K tiles of {depth}{}",
                if depth == INT4_K_TILE_MAX {
                    ", as any do; --int4-depth assumes others"
                } else {
                    ""
                }
            );
        }
        let _ = writeln!(text, "profile: {}", self.profile);
        if let Some(reason) = &self.profile_refused {
            let _ = writeln!(text, "{reason}");
        }
        if let Some(ns) = self.measured_ns {
            let ms = ns as f64 / 1e6;
            let _ = writeln!(text, "chosen by the profile: the fastest, {ms:.3} ms");
        }
        for (name, plan) in [
            ("chosen", Some(&self.chosen)),
            ("K whole", self.whole_k.as_ref()),
            ("K cut", self.cut_k.as_ref()),
        ] {
            match plan {
                Some(plan) => plan.write(name, &mut text),
                None => {
                    let _ = writeln!(text, "\n{name:8} no such plan");
                }
            }
        }
        text.push_str(&self.memory.text());
        text
    }
}
