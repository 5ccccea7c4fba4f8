// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs a weight tensor whose data just arrived.

use std::time::Instant;

use serde_json::json;

use crate::compute::runtime::Runtime;
use crate::decide::offload;
use crate::ggml::log::LogLevel;
use crate::ggml::shared;
use crate::ggml::tensor_data::{TensorData, TensorMatrix};
use crate::ggml::tensor_ref::TensorRef;
use crate::weights::pack;
use crate::weights::packed_tensor::{MatrixKey, PackedTensor};

/// Packs all matrices of `tensor` into `residents`. `bytes` is its data as in the model file.
///
/// # Errors
/// Why it cannot be offloaded, in words; then nothing of it is resident.
pub(crate) fn pack_tensor(
    runtime: &Runtime,
    residents: &PackedTensor,
    tensor: TensorRef<'_>,
    bytes: &[u8],
) -> Result<(), String> {
    let began = Instant::now();
    let weights = tensor.descriptor();
    let storable = offload::storable(&weights, &runtime.rules);
    let (precision, [_, _, b2, b3]) = storable.map_err(|reason| reason.to_string())?;
    let engine = runtime.engine().ok_or("the process is ending")?;
    let rows = TensorData {
        tensor: weights,
        bytes,
    };
    let mut packed = Vec::new();
    for index in (0..b3).flat_map(|i3| (0..b2).map(move |i2| [i2, i3])) {
        let matrix = TensorMatrix::new(&rows, index);
        let matrix = matrix.ok_or("its data is shorter than its strides require")?;
        let loaded = pack::load_matrix(&engine, precision, &matrix, runtime.verify.is_on());
        packed.push((index, loaded.map_err(|error| error.to_string())?));
    }
    for (index, matrix) in packed {
        residents.insert(MatrixKey { index, precision }, matrix);
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
