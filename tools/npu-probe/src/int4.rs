// SPDX-License-Identifier: MIT OR Apache-2.0
//! How an engine plans INT4 weights of which it knows the values.

use npu_matmul::plan::WeightPlan;
use npu_matmul::{Dtype, PlanError, PlanOptions};

/// The options of a plan for weights, `n x k`, that allow K tiles of `depth`: in
/// as many copies as memory is planned with before their values are known, as
/// [`Engine::load`](npu_matmul::Engine::load) does.
pub(crate) fn of_int4(
    options: &PlanOptions,
    n: usize,
    k: usize,
    fds: usize,
    depth: usize,
) -> Result<PlanOptions, PlanError> {
    let replicate = match WeightPlan::new(Dtype::Int4, n, k, fds, options) {
        Ok(of_any) => Some(of_any.replicas > 1),
        // Tiles that were asked for, which these weights may allow.
        Err(PlanError::Int4Saturation { .. }) => options.replicate,
        Err(error) => return Err(error),
    };
    Ok(PlanOptions {
        int4_depth: Some(depth),
        replicate,
        ..options.clone()
    })
}
