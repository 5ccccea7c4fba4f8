// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe plan`: how a product would be cut, and what it would take.

mod memory;
mod one;

use std::fmt::Write;
use std::num::NonZeroUsize;
use std::sync::Arc;

use npu_matmul::plan::{
    Candidate, DeviceKind, INT4_K_TILE_MAX, OtherConditions, TunedFor, TunedPlan, TunedPlans,
    candidates, cheapest,
};
use npu_matmul::{Dtype, Plan, PlanError, PlanOptions, Results};
use rknpu_regcmd::timing::Machine;
use serde::Serialize;

use crate::bench::to;
use crate::exit::{Failure, Verdict};
use crate::flags::measuring::HERTZ_PER_MHZ;
use crate::flags::{Flags, PlanFlags};
use crate::int4::of_int4;
use crate::output;
use crate::plans_file;
use memory::{MIB, MemoryReport};
use one::PlanReport;

/// File descriptors of a plan where none are given: one for each core.
const DEFAULT_FDS: usize = 3;

/// The report of `plan`, which is printed as text or as JSON.
#[derive(Debug, Serialize)]
struct Report {
    m: usize,
    k: usize,
    n: usize,
    dtype: String,
    /// Rows that the NPU multiplies: of w4a8 two for each of A.
    npu_rows: usize,
    clock_mhz: u64,
    fds: usize,
    results: Results,
    /// Cortex-A76 that pack and unpack.
    cpu_cores: u32,
    /// Of int4: how deep a K tile the weights are taken to allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    int4_depth: Option<usize>,
    /// Of a plan of the table: on what it was measured, and how long it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Measured>,
    /// Why the measured plans that were given are not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    plans_not_used: Option<String>,
    /// Memory that the weights of the chosen plan take.
    memory: MemoryReport,
    chosen: PlanReport,
    /// The best plan that does not cut K, and the best one that does.
    whole_k: Option<PlanReport>,
    cut_k: Option<PlanReport>,
}

/// How a plan of a table of measured plans was measured.
#[derive(Debug, Serialize)]
struct Measured {
    on: TunedFor,
    /// The time that it took, nanoseconds; on the software model modelled time.
    measured_ns: u64,
}

pub(crate) fn run(flags: &Flags, args: &PlanFlags) -> Result<Verdict, Failure> {
    let plans = args.plans.as_deref().map(plans_file::read).transpose()?;
    let report = report(args, plans).map_err(|error| Failure::Usage(error.into()))?;
    if flags.json {
        output::print_json(&report)?;
    } else {
        output::print(&report.text())?;
    }
    Ok(Verdict::Pass)
}

/// These plans, if they are for that machine; on which device is not asked here.
fn if_for(plans: Arc<TunedPlans>, machine: &Machine) -> Result<Arc<TunedPlans>, OtherConditions> {
    let theirs = plans.conditions();
    theirs.check(&TunedFor {
        chip: machine.chip.name.to_owned(),
        clock_hz: machine.clock_hz,
        ..theirs.clone()
    })?;
    Ok(plans)
}

fn report(args: &PlanFlags, plans: Option<Arc<TunedPlans>>) -> Result<Report, PlanError> {
    let (m, k, n) = (args.m.get(), args.k.get(), args.n.get());
    let dtype = args.dtype.dtype();
    let rows = args.dtype.npu_rows(m);
    let fds = args.fds.map_or(DEFAULT_FDS, NonZeroUsize::get);
    let machine = Machine::RK3588.at_clock(args.clock.get().saturating_mul(HERTZ_PER_MHZ));
    let (tuned, plans_not_used) = match plans.map(|plans| if_for(plans, &machine)).transpose() {
        Ok(plans) => (plans, None),
        Err(other) => (None, Some(other.to_string())),
    };
    let options = PlanOptions {
        tuned,
        k_tile: args.k_tile.map(NonZeroUsize::get),
        conditions: args.planning.conditions(dtype, machine, rows),
        ..PlanOptions::default()
    };
    let options = match args.planning.int4_depth(dtype, k) {
        Some(depth) => of_int4(&options, n, k, fds, depth)?,
        None => options,
    };
    let of = |candidate: &Candidate| PlanReport::new(candidate, args.dtype, m, &options);
    let all = candidates(dtype, n, k, fds, &options)?;
    let best = |whole: bool| {
        let mut of_kind = all.clone();
        of_kind.retain(|candidate| (candidate.weights.k_tile_count() == 1) == whole);
        cheapest(of_kind).as_ref().map(of).transpose()
    };
    let weights = npu_matmul::plan::WeightPlan::new(dtype, n, k, fds, &options)?;
    let chosen = Candidate::new(weights, &options)?;
    let results = options.conditions.results;
    let plan = Plan::with_results(&chosen.weights, rows, results, &options)?;
    let measured = options.tuned.as_deref().and_then(|plans| {
        let TunedPlan { measured_ns, .. } = *plans.followed_by(&plan, results)?;
        Some(Measured {
            on: plans.conditions().clone(),
            measured_ns,
        })
    });
    let max = args.memory.map(|mib| mib.saturating_mul(MIB as u64));
    Ok(Report {
        m,
        k,
        n,
        dtype: args.dtype.to_string(),
        npu_rows: rows,
        clock_mhz: args.clock.get(),
        fds,
        results,
        cpu_cores: options.conditions.host.cores,
        int4_depth: (dtype == Dtype::Int4).then_some(chosen.weights.k_tile_max),
        measured,
        plans_not_used,
        memory: MemoryReport::new(&chosen.weights, fds, max, &options),
        chosen: of(&chosen)?,
        whole_k: best(true)?,
        cut_k: best(false)?,
    })
}

impl Report {
    fn text(&self) -> String {
        let Self {
            m,
            k,
            n,
            dtype,
            clock_mhz,
            fds,
            ..
        } = self;
        let mut text = format!(
            "{dtype}{} {m} x {k} x {n} at {clock_mhz} MHz, {fds} file descriptor(s); \
             {} CPU cores pack and unpack; all times are modelled\n",
            to(self.results),
            self.cpu_cores
        );
        if self.npu_rows != *m {
            let _ = writeln!(
                text,
                "{} rows of nibbles on the NPU: tiles and bounds are of those, rates of {m} rows",
                self.npu_rows
            );
        }
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
        if let Some(reason) = &self.plans_not_used {
            let _ = writeln!(text, "predicted: {reason}");
        }
        if let Some(Measured { on, measured_ns }) = &self.measured {
            let _ = writeln!(
                text,
                "chosen by the table: {:.3} ms, {}, on {on}",
                *measured_ns as f64 / 1e6,
                match on.device {
                    DeviceKind::Silicon => "measured",
                    DeviceKind::Model => "modelled",
                }
            );
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
