// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of the engine that do not depend on each other. They are computed at once, again if less
//! may be wrong then, and counted.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use npu_matmul::attention::AttentionShape;
use npu_matmul::{AbortCheck, Engine, SoftwareNpu};
use serde_json::{Value, json};

use crate::compute::attention::{self, AttentionNode};
use crate::compute::matmul::{self, MatmulNode, RowScratch};
use crate::compute::runtime::Runtime;
use crate::decide::offload::MatmulSize;
use crate::ggml::abi::status;
use crate::ggml::log::LogLevel;
use crate::ggml::stream::Stream;
use crate::report::stats::Stats;
use crate::report::trace::{self, Trace};
use crate::weights::node_error::{Consequence, FailedNode, NodeFailure};
use crate::weights::verify::OutputErrors;

/// Why a graph has no results.
#[derive(Debug)]
pub(super) enum GraphFailure {
    /// The program asked to stop.
    Aborted,
    Node {
        /// A value of [`status`], for ggml.
        status: c_int,
        /// A sentence for people that names the node.
        line: String,
        consequence: Consequence,
    },
}

impl GraphFailure {
    /// A failure that the CPU would share.
    pub(super) const fn node(status: c_int, line: String) -> Self {
        Self::Node {
            status,
            line,
            consequence: Consequence::Error,
        }
    }

    pub(super) const fn consequence(&self) -> Consequence {
        match self {
            Self::Aborted => Consequence::Error,
            Self::Node { consequence, .. } => *consequence,
        }
    }

    /// The failure of a node, which `what` names.
    pub(super) fn of(what: &str, error: NodeFailure, model: Option<&SoftwareNpu>) -> Self {
        let consequence = error.consequence();
        let error = error.explained(model);
        Self::Node {
            status: if error.is_out_of_memory() {
                status::ALLOC_FAILED
            } else {
                status::FAILED
            },
            line: format!("computing {what} failed: {error}"),
            consequence,
        }
    }
}

impl From<String> for GraphFailure {
    fn from(line: String) -> Self {
        Self::node(status::FAILED, line)
    }
}

/// A kind of call that nodes ask of the engine.
pub(super) trait EngineCall: Sized + Send {
    /// Categories in the trace: for computed calls, and for failed calls.
    const CATEGORIES: [&'static str; 2];

    /// Computes calls that do not depend on each other.
    /// `gives_up` is asked before a failed job runs again.
    fn compute(
        engine: &Engine,
        scratch: &RowScratch,
        calls: &mut [Self],
        gives_up: AbortCheck<'_>,
    ) -> Result<(), FailedNode>;

    /// Errors of its outputs against the CPU's, if it is verified.
    fn errors(&mut self) -> &mut Option<OutputErrors>;

    /// Sizes and precision, for people.
    fn describe(&self) -> String;

    /// The same for the trace.
    fn args(&self) -> Value;

    /// Counts calls that were computed together in `time`.
    fn count(calls: &[Self], time: Duration, stats: &mut Stats);
}

/// Computes calls that do not depend on each other, each with the name of its node.
pub(super) fn compute<T: EngineCall>(
    calls: Vec<(String, T)>,
    runtime: &Runtime,
    stream: &Stream,
) -> Result<Vec<T>, GraphFailure> {
    let (names, mut calls): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
    let Some(first) = names.first() else {
        return Ok(calls);
    };
    let engine = runtime
        .engine()
        .ok_or_else(|| format!("cannot compute {first}: the process is ending"))?;
    let began = Instant::now();
    let number = runtime.trace().map_or(0, Trace::next_list);
    // A list may have many jobs, and each could cost as much as the purse holds.
    // The program's answer counts, whatever it answers later.
    let is_aborted = AtomicBool::new(false);
    let gives_up = || {
        if stream.is_aborted() {
            is_aborted.store(true, Ordering::Relaxed);
            return true;
        }
        runtime.fallback.has_lost_too_much((&engine.times()).into())
    };
    let computed = loop {
        let computed = stream.run(|| {
            trace::in_list(number, || {
                T::compute(&engine, &runtime.row_scratch, &mut calls, &gives_up)
            })
        });
        match computed {
            // After each retry less is left that may be wrong.
            Err(FailedNode { call, error }) if error.may_run_again() => {
                let line = format!("computing {} again: {error}", names[call]);
                runtime.log(LogLevel::Warn, &line);
                for errors in calls.iter_mut().filter_map(|call| call.errors().as_mut()) {
                    *errors = OutputErrors::default();
                }
            }
            computed => break computed,
        }
    };
    let ended = Instant::now();
    if let Some(trace) = runtime.trace() {
        let category = T::CATEGORIES[usize::from(computed.is_err())];
        for (name, call) in names.iter().zip(&calls) {
            let mut args = call.args();
            args["list"] = number.into();
            trace.slice(category, name, (began, ended), args);
        }
    }
    computed.map_err(|FailedNode { call, error }| {
        // Another device's job may have failed first.
        if is_aborted.load(Ordering::Relaxed) {
            return GraphFailure::Aborted;
        }
        let error = if error.is_aborted() {
            NodeFailure::GivenUp
        } else {
            error
        };
        let what = format!("{} ({})", names[call], calls[call].describe());
        GraphFailure::of(&what, error, runtime.model.as_ref())
    })?;
    T::count(&calls, ended - began, &mut runtime.stats());
    for (name, call) in names.iter().zip(&mut calls) {
        if let Some(errors) = *call.errors() {
            let (nmse, what) = (errors.nmse(), call.describe());
            let line = format!("verified {name} ({what}): NMSE {nmse:.3e}");
            runtime.log(LogLevel::Info, &line);
        }
    }
    Ok(calls)
}

impl EngineCall for MatmulNode<'_> {
    const CATEGORIES: [&'static str; 2] = ["matmul", "failed matmul"];

    fn compute(
        engine: &Engine,
        scratch: &RowScratch,
        calls: &mut [Self],
        gives_up: AbortCheck<'_>,
    ) -> Result<(), FailedNode> {
        matmul::compute(engine, scratch, calls, matmul::MOST, gives_up)
    }

    fn errors(&mut self) -> &mut Option<OutputErrors> {
        &mut self.errors
    }

    fn describe(&self) -> String {
        let (rows, precision) = (self.offload.rows(), self.offload.precision.name());
        let MatmulSize { n, k, .. } = self.offload.shape;
        format!("{rows} x {k} times {k} x {n}, {precision}")
    }

    fn args(&self) -> Value {
        json!({
            "rows": self.offload.rows(),
            "k": self.offload.shape.k,
            "n": self.offload.shape.n,
            "precision": self.offload.precision.name(),
        })
    }

    fn count(calls: &[Self], _time: Duration, stats: &mut Stats) {
        stats.lists += 1;
        for Self { offload, .. } in calls {
            stats.computed[offload.precision as usize] += 1;
            stats.macs += offload.outputs() as u64 * offload.shape.k as u64;
        }
    }
}

impl EngineCall for AttentionNode<'_> {
    const CATEGORIES: [&'static str; 2] = ["attention", "failed attention"];

    fn compute(
        engine: &Engine,
        scratch: &RowScratch,
        calls: &mut [Self],
        gives_up: AbortCheck<'_>,
    ) -> Result<(), FailedNode> {
        attention::compute(engine, scratch, calls, gives_up)
    }

    fn errors(&mut self) -> &mut Option<OutputErrors> {
        &mut self.errors
    }

    fn describe(&self) -> String {
        let AttentionShape {
            rows, heads, keys, ..
        } = self.shape.batch;
        format!("{rows} rows of {heads} heads, {keys} keys")
    }

    fn args(&self) -> Value {
        let batch = &self.shape.batch;
        json!({
            "rows": batch.rows,
            "keys": batch.keys,
            "heads": batch.heads,
            "kv heads": batch.kv_heads,
            "streams": self.shape.streams,
            "head": batch.head_dim,
            "value": batch.value_dim,
        })
    }

    fn count(calls: &[Self], time: Duration, stats: &mut Stats) {
        stats.attention_time += time;
        stats.attentions += calls.len() as u64;
        for Self { shape, .. } in calls {
            let rows = shape.batch.rows as u64 * shape.streams as u64;
            stats.attention_pairs += rows * shape.batch.keys as u64;
        }
    }
}
