// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leaves to ggml's CPU backend what the NPU failed to compute.

use super::calls::GraphFailure;
use crate::compute::rest::FIND;
use crate::compute::runtime::Runtime;
use crate::decide::config::FALLBACK;
use crate::ggml::log::LogLevel;
use crate::ggml::stream::Stream;
use crate::ggml::tensor_ref::TensorRef;
use crate::weights::node_error::Consequence;

/// Whether the CPU may compute `node` in place of the NPU.
pub(super) fn can_fall_back(runtime: &Runtime, node: TensorRef<'_>) -> bool {
    runtime.fallback.allows(Consequence::Cpu) && runtime.cpu.computes(node)
}

/// Leaves `nodes` to the CPU, which the NPU could not compute. Returns the failure if the CPU cannot
/// either, or if the program wants to stop.
pub(super) fn hand_over(
    runtime: &Runtime,
    stream: &Stream,
    failure: GraphFailure,
    nodes: &[TensorRef<'_>],
) -> Result<(), GraphFailure> {
    let consequence = failure.consequence();
    let is_for_cpu = |node: &TensorRef<'_>| runtime.cpu.computes(*node);
    if !runtime.fallback.allows(consequence) || !nodes.iter().all(is_for_cpu) {
        return Err(failure);
    }
    if stream.is_aborted() {
        return Err(GraphFailure::Aborted);
    }
    if let GraphFailure::Node { line, .. } = &failure {
        note(runtime, consequence, line, nodes.len());
    }
    Ok(())
}

/// Counts and tells that the CPU computes a list of `nodes` nodes, because the NPU failed as `line`
/// says.
fn note(runtime: &Runtime, consequence: Consequence, line: &str, nodes: usize) {
    if !consequence.is_failure() {
        return;
    }
    let mut stats = runtime.stats();
    stats.left_to_cpu += nodes as u64;
    stats.handed_over += 1;
    drop(stats);
    // A wrong result is told each time: there is one for each precision.
    if runtime.fallback.told.failure.is_first() || consequence == Consequence::CpuAndDistrust {
        let line = format!(
            "{line}. The CPU computes it, and what fails later, without another message; \
             GGML_ROCKET_STATS=1 counts failures. {FIND}. With {FALLBACK}=0 a failure is an error"
        );
        runtime.log(LogLevel::Warn, &line);
    }
}
