// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs a weight tensor whose data just arrived.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::abi::Tensor;
use crate::budget::{MIB, WeightDecision};
use crate::log::LogLevel;
use crate::matrix::Matrix;
use crate::pack::{self, PackedMatrix};
use crate::resident::ResidentMatrices;
use crate::runtime::Runtime;
use crate::supports::{self, TensorDescriptor};
use crate::tensor_bytes::TensorBytes;

/// Packs all matrices of `tensor`, which is `weights`, from `bytes`, its data as in the model file,
/// into `residents`.
///
/// # Errors
/// Why it cannot be offloaded, in words; then nothing of it is resident.
pub(crate) fn pack_tensor(
    runtime: &Runtime,
    residents: &ResidentMatrices<PackedMatrix>,
    tensor: &Tensor,
    weights: &TensorDescriptor,
    bytes: &[u8],
    decision: &Arc<WeightDecision>,
) -> Result<(), String> {
    let began = Instant::now();
    // SAFETY: a tensor that the host passed.
    let decoder = unsafe { runtime.types.decoder(tensor.type_id) };
    let decoder = decoder.ok_or("ggml cannot decode it")?;
    let (precision, dimensions) =
        supports::storable(weights, &runtime.rules).map_err(|reason| reason.words().to_owned())?;
    let engine = runtime.engine().ok_or("the process is ending")?;
    let rows = TensorBytes {
        bytes,
        row_bytes: weights
            .format
            .row_bytes(dimensions[0])
            .ok_or("its rows are no whole blocks")?,
        nb: tensor.nb,
    };
    let [k, n, b2, b3] = dimensions;
    let mut packed = Vec::new();
    for i3 in 0..b3 {
        for i2 in 0..b2 {
            let matrix = Matrix::new(decoder, &rows, [n, k], [i2, i3])
                .ok_or("its data are shorter than its strides say")?;
            let key = weights
                .key(tensor.data.addr(), [i2, i3])
                .ok_or("its strides leave memory")?;
            let loaded = pack::load_matrix(&engine, precision, &matrix, runtime.verify.is_on());
            let mut loaded = loaded.map_err(|error| error.to_string())?;
            loaded.counted = Some(decision.count_packed());
            packed.push((key, loaded));
        }
    }
    for (key, weights) in packed {
        residents.insert(key, weights);
    }
    if let Some(trace) = runtime.trace() {
        let args = json!({ "bytes": bytes.len(), "precision": precision.name() });
        trace.slice("load", &tensor.name(), (began, Instant::now()), args);
    }
    if let Some(line) = runtime.progress.step(bytes.len()) {
        runtime.log(LogLevel::Info, &line);
    }
    Ok(())
}

/// Time after which a user who waits is told how far the packing is.
const SILENCE: Duration = Duration::from_secs(2);

/// Tells users who wait how far the packing of weights is.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<Option<Packing>>);

#[derive(Debug)]
struct Packing {
    said: Instant,
    tensors: usize,
    bytes: usize,
}

impl Progress {
    /// Another tensor is packed, of so many bytes in the file: a line for the
    /// log if there was none for some time.
    fn step(&self, bytes: usize) -> Option<String> {
        let mut packing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let packing = packing.get_or_insert(Packing {
            said: now,
            tensors: 0,
            bytes: 0,
        });
        packing.tensors += 1;
        packing.bytes += bytes;
        if now.duration_since(packing.said) < SILENCE {
            return None;
        }
        packing.said = now;
        let (tensors, mib) = (packing.tensors, packing.bytes as u64 / MIB);
        Some(format!(
            "packed {tensors} tensors, {mib} MiB of the model, for the NPU"
        ))
    }
}
