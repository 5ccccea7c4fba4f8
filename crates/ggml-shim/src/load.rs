// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs a weight tensor whose data just arrived.

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;

use crate::budget::WeightDecision;
use crate::host_tensor::HostTensor;
use crate::log::LogLevel;
use crate::pack::{self, PackedMatrix};
use crate::resident::ResidentMatrices;
use crate::runtime::Runtime;
use crate::shared;
use crate::supports;
use crate::tensor_bytes::{Matrix, TensorBytes};

/// Packs all matrices of `tensor` into `residents`. `bytes` is its data as in the model file.
///
/// # Errors
/// Why it cannot be offloaded, in words; then nothing of it is resident.
pub(crate) fn pack_tensor(
    runtime: &Runtime,
    residents: &ResidentMatrices<PackedMatrix>,
    tensor: HostTensor<'_>,
    bytes: &[u8],
    decision: &Arc<WeightDecision>,
) -> Result<(), String> {
    let began = Instant::now();
    let weights = tensor.descriptor();
    let storable = supports::storable(&weights, &runtime.rules);
    let (precision, [_, _, b2, _]) = storable.map_err(|reason| reason.to_string())?;
    let engine = runtime.engine().ok_or("the process is ending")?;
    let rows = TensorBytes {
        tensor: weights,
        bytes,
    };
    let keys = weights.keys(tensor.address());
    let keys = keys.ok_or("its strides exceed the address space")?;
    let mut packed = Vec::new();
    for (index, key) in keys.into_iter().enumerate() {
        let matrix = Matrix::new(&rows, [index % b2, index / b2])
            .ok_or("its data is shorter than its strides require")?;
        let loaded = pack::load_matrix(&engine, precision, &matrix, runtime.verify.is_on());
        let mut loaded = loaded.map_err(|error| error.to_string())?;
        loaded.counted = Some(decision.count_packed());
        packed.push((key, loaded));
    }
    for (key, weights) in packed {
        residents.insert(key, weights);
    }
    if let Some(trace) = runtime.trace() {
        let args = json!({ "bytes": bytes.len(), "precision": precision.name() });
        trace.slice("load", &tensor.name(), (began, Instant::now()), args);
    }
    let line = shared::lock(&runtime.progress).step(bytes.len());
    if let Some(line) = line {
        runtime.log(LogLevel::Info, &line);
    }
    Ok(())
}
