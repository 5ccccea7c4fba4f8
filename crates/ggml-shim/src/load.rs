// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs a weight tensor whose data just arrived.

use npu_matmul::Weights;

use crate::abi::Tensor;
use crate::mul_mat::Rows;
use crate::pack::{self, Packed};
use crate::resident::Residents;
use crate::runtime::Runtime;
use crate::supports;

/// Packs all matrices of `tensor` from `bytes`, its data as in the model file,
/// into `residents`.
///
/// # Errors
/// Why it cannot be offloaded, in words; then nothing of it is resident.
pub(crate) fn pack(
    runtime: &Runtime,
    residents: &Residents<Packed<Weights>>,
    tensor: &Tensor,
    bytes: &[u8],
) -> Result<(), String> {
    // SAFETY: a tensor that the host passed.
    let weights = unsafe { tensor.operand(runtime.types) };
    // SAFETY: as above.
    let decoder = unsafe { runtime.types.decoder(tensor.type_id) };
    let decoder = decoder.ok_or("ggml cannot decode it")?;
    let (precision, dimensions) = supports::storable(&weights, runtime.config.policy.precision)
        .map_err(|reason| reason.words().to_owned())?;
    let engine = runtime.engine().ok_or("the process is ending")?;
    let rows = Rows {
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
            let matrix = pack::Matrix::new(decoder, &rows, [n, k], [i2, i3])
                .ok_or("its data are shorter than its strides say")?;
            let key = weights
                .key(tensor.data.addr(), [i2, i3])
                .ok_or("its strides leave memory")?;
            let loaded = pack::load(&*engine, precision, &matrix);
            packed.push((key, loaded.map_err(|error| error.to_string())?));
        }
    }
    for (key, weights) in packed {
        residents.insert(key, weights);
    }
    Ok(())
}
