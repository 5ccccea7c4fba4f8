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
use crate::decide::offload::{AttentionOffload, MatmulSize};
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

/// Calls of one kind. The nodes of a list do not depend on each other.
pub(super) enum NodeCalls<'a> {
    Matmul(Vec<MatmulNode<'a>>),
    Attention(Vec<AttentionNode<'a>>),
}

impl NodeCalls<'_> {
    /// Category in the trace.
    const fn category(&self, has_failed: bool) -> &'static str {
        match (self, has_failed) {
            (Self::Matmul(_), false) => "matmul",
            (Self::Matmul(_), true) => "failed matmul",
            (Self::Attention(_), false) => "attention",
            (Self::Attention(_), true) => "failed attention",
        }
    }

    /// Computes the calls. `gives_up` is asked before a failed job runs again.
    fn compute(
        &mut self,
        engine: &Engine,
        scratch: &RowScratch,
        gives_up: AbortCheck<'_>,
    ) -> Result<(), FailedNode> {
        match self {
            Self::Matmul(calls) => matmul::compute(engine, scratch, calls, matmul::MOST, gives_up),
            Self::Attention(calls) => attention::compute(engine, scratch, calls, gives_up),
        }
    }

    /// For each call, the errors of its outputs against the CPU's, if it is verified.
    fn errors(&mut self) -> Vec<&mut Option<OutputErrors>> {
        match self {
            Self::Matmul(calls) => calls.iter_mut().map(|call| &mut call.errors).collect(),
            Self::Attention(calls) => calls.iter_mut().map(|call| &mut call.errors).collect(),
        }
    }

    /// Sizes and precision of a call, for people.
    fn describe(&self, call: usize) -> String {
        match self {
            Self::Matmul(calls) => {
                let offload = &calls[call].offload;
                let (rows, precision) = (offload.rows(), offload.precision.name());
                let MatmulSize { n, k, .. } = offload.shape;
                format!("{rows} x {k} times {k} x {n}, {precision}")
            }
            Self::Attention(calls) => {
                let AttentionShape {
                    rows, heads, keys, ..
                } = calls[call].shape.batch;
                format!("{rows} rows of {heads} heads, {keys} keys")
            }
        }
    }

    /// The same for the trace.
    fn args(&self, call: usize) -> Value {
        match self {
            Self::Matmul(calls) => {
                let offload = &calls[call].offload;
                json!({
                    "rows": offload.rows(),
                    "k": offload.shape.k,
                    "n": offload.shape.n,
                    "precision": offload.precision.name(),
                })
            }
            Self::Attention(calls) => {
                let AttentionOffload { batch, streams, .. } = &calls[call].shape;
                json!({
                    "rows": batch.rows,
                    "keys": batch.keys,
                    "heads": batch.heads,
                    "kv heads": batch.kv_heads,
                    "streams": streams,
                    "head": batch.head_dim,
                    "value": batch.value_dim,
                })
            }
        }
    }

    /// Counts the calls, which were computed together in `time`.
    fn count(&self, time: Duration, stats: &mut Stats) {
        match self {
            Self::Matmul(calls) => {
                stats.lists += 1;
                for MatmulNode { offload, .. } in calls {
                    stats.computed[offload.precision as usize] += 1;
                    stats.macs += offload.outputs() as u64 * offload.shape.k as u64;
                }
            }
            Self::Attention(calls) => {
                stats.attention_time += time;
                stats.attentions += calls.len() as u64;
                for AttentionNode { shape, .. } in calls {
                    let rows = shape.batch.rows as u64 * shape.streams as u64;
                    stats.attention_pairs += rows * shape.batch.keys as u64;
                }
            }
        }
    }

    /// The outputs that were set aside.
    fn aside(self) -> Vec<Vec<f32>> {
        match self {
            Self::Matmul(calls) => calls.into_iter().filter_map(|c| c.out.aside()).collect(),
            Self::Attention(calls) => calls.into_iter().filter_map(|c| c.out.aside()).collect(),
        }
    }
}

/// Computes the calls of nodes with these names. Returns the outputs that were set aside; no slice
/// of the nodes' data is left then.
pub(super) fn compute(
    names: &[String],
    mut calls: NodeCalls<'_>,
    runtime: &Runtime,
    stream: &Stream,
) -> Result<Vec<Vec<f32>>, GraphFailure> {
    let Some(first) = names.first() else {
        return Ok(Vec::new());
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
                calls.compute(&engine, &runtime.row_scratch, &gives_up)
            })
        });
        match computed {
            // After each retry less is left that may be wrong.
            Err(FailedNode { call, error }) if error.may_run_again() => {
                let line = format!("computing {} again: {error}", names[call]);
                runtime.log(LogLevel::Warn, &line);
                for errors in calls.errors().into_iter().flatten() {
                    *errors = OutputErrors::default();
                }
            }
            computed => break computed,
        }
    };
    let ended = Instant::now();
    if let Some(trace) = runtime.trace() {
        let category = calls.category(computed.is_err());
        for (call, name) in names.iter().enumerate() {
            let mut args = calls.args(call);
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
        let what = format!("{} ({})", names[call], calls.describe(call));
        GraphFailure::of(&what, error, runtime.model.as_ref())
    })?;
    calls.count(ended - began, &mut runtime.stats());
    let errors: Vec<_> = calls.errors().into_iter().map(|errors| *errors).collect();
    for (call, (name, errors)) in names.iter().zip(errors).enumerate() {
        if let Some(errors) = errors {
            let (nmse, what) = (errors.nmse(), calls.describe(call));
            let line = format!("verified {name} ({what}): NMSE {nmse:.3e}");
            runtime.log(LogLevel::Info, &line);
        }
    }
    Ok(calls.aside())
}
