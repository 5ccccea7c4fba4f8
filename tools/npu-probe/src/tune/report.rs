// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was tried, and what is the fastest.

use std::fmt::Write;

use npu_matmul::Results;
use npu_matmul::plan::{PlanSizes, TunedFor};
use serde::Serialize;

use crate::bench::{MeasuringConditions, to};

/// A plan that was tried.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct TimedPlan {
    pub(crate) choice: PlanSizes,
    /// Modelled: the NPU, and the CPU's sums.
    pub(crate) predicted_ns: u64,
    /// Measured time; on the software model it is modelled, too.
    pub(crate) measured_ns: u64,
}

/// A product with the plans that were measured for it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TunedProduct {
    pub(crate) dtype: String,
    pub(crate) results: Results,
    /// Depth of a tile that INT4 weights allow, which tells entries of a table apart.
    pub(crate) int4_depth: Option<usize>,
    pub(crate) m: usize,
    pub(crate) k: usize,
    pub(crate) n: usize,
    /// The predicted one first.
    pub(crate) plans: Vec<TimedPlan>,
    /// Index of the fastest of them.
    pub(crate) best: usize,
}

/// The report of `tune`, which is printed as text or as JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TuneReport {
    pub(crate) conditions: MeasuringConditions,
    /// The device and the clock that the plans are for.
    pub(crate) tuned_for: TunedFor,
    /// What the measured times are times of, in words.
    pub(crate) measured: &'static str,
    pub(crate) products: Vec<TunedProduct>,
    /// The table, if it was written.
    pub(crate) file: Option<String>,
}

impl TuneReport {
    /// What the measured times are times of, in words.
    pub(crate) const fn measured(is_model: bool) -> &'static str {
        if is_model {
            "modelled, not measured: the jobs that the software model ran, and the CPU's sums. \
             An NPU does not use these plans"
        } else {
            "median from call to return, with packing and reading back"
        }
    }
}

impl TunedProduct {
    /// The report as a table of its plans.
    pub(crate) fn text(&self, is_model: bool) -> String {
        let Self { dtype, m, k, n, .. } = self;
        let column = if is_model { "of jobs" } else { "measured" };
        let mut text = format!(
            "\n{dtype}{} {m}x{k}x{n}{}\n     K tile  rows  columns  fds share      {:>12}  {:>12}\n",
            to(self.results),
            self.int4_depth.map_or_else(String::new, |depth| format!(
                ", weights that allow tiles of {depth}"
            )),
            "predicted",
            column
        );
        for (at, plan) in self.plans.iter().enumerate() {
            let PlanSizes {
                k_tile,
                replicate,
                row_tile,
                n_tile,
            } = plan.choice;
            let _ = writeln!(
                text,
                "  {} {k_tile:>7}  {row_tile:>4}  {n_tile:>7}  {:13}  {:>9.3} ms  {:>9.3} ms{}",
                if at == self.best { "*" } else { " " },
                if replicate { "rows" } else { "columns" },
                milliseconds(plan.predicted_ns),
                milliseconds(plan.measured_ns),
                if is_model { ", modelled" } else { "" }
            );
        }
        text
    }
}

fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}
