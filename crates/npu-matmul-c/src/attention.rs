// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attention for the C interface.

use half::f16;
use npu_matmul::attention::{AttentionCall, HeadRows};

use crate::RocketNpuEngine;
use crate::memory::{array, array_mut, object};
use crate::status::{CallError, RocketNpuStatus, call};

/// Operands of rocket_npu_attend(): attention of a batch of rows for all heads of a layer. Sizes
/// and strides count elements. 16-bit numbers are binary16, passed as their bits.
///
/// The elements of a vector are contiguous. The vector of head h and row (or key) r begins at
/// element h * head_stride + r * row_stride. So heads and rows may have any order, and a stride of
/// 0 repeats a vector.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RocketNpuAttention {
    /// Number of query heads.
    pub heads: usize,
    /// Number of KV heads, a divisor of `heads`. Query heads that share a KV head are adjacent.
    pub kv_heads: usize,
    /// Rows (queries) of each head.
    pub rows: usize,
    /// Keys of each head.
    pub keys: usize,
    /// Elements of each query and key.
    pub head_dim: usize,
    /// Elements of each value.
    pub value_dim: usize,
    /// Queries: a vector of head_dim elements for each head and row.
    pub q: *const f32,
    /// Stride from one head to the next.
    pub q_head_stride: usize,
    /// Stride from one row to the next.
    pub q_row_stride: usize,
    /// Keys: a vector of head_dim elements for each KV head and key.
    pub k: *const u16,
    /// Stride from one head to the next.
    pub k_head_stride: usize,
    /// Stride from one key to the next.
    pub k_row_stride: usize,
    /// Values: a vector of value_dim elements for each KV head and key.
    pub v: *const u16,
    /// Stride from one head to the next.
    pub v_head_stride: usize,
    /// Stride from one key to the next.
    pub v_row_stride: usize,
    /// Null, or added to the scores: a vector of `keys` elements for each row. Minus infinity hides
    /// the key from the row.
    pub mask: *const u16,
    /// Heads of the mask: 1 if all heads share it. Head h uses mask h % mask_heads. Ignored, like
    /// the mask's strides, if the mask is null.
    pub mask_heads: usize,
    /// Stride from one mask head to the next.
    pub mask_head_stride: usize,
    /// Stride from one row to the next.
    pub mask_row_stride: usize,
    /// Null, or the factor of the mask for each head (ALiBi).
    pub slopes: *const f32,
    /// Null, or a score for each head that takes part in the softmax and has no value.
    pub sinks: *const f32,
    /// Factor of the dot products, mostly 1 / sqrt(head_dim).
    pub scale: f32,
    /// The bound c of c * tanh(score / c), applied before the mask; 0 disables it.
    pub softcap: f32,
    /// The result: rows x heads x value_dim elements without gaps.
    pub out: *mut f32,
}

/// Returns a view of an operand's vectors: heads, rows and elements of each, and the strides.
///
/// # Safety
/// `data` is null, or has all elements of these vectors, which nobody changes as long as the result
/// is used.
unsafe fn vectors<'a, T>(
    data: *const T,
    sizes: [usize; 3],
    strides: [usize; 2],
    name: &'static str,
) -> Result<HeadRows<'a, T>, CallError> {
    let extent = HeadRows::<T>::extent(sizes, strides);
    // SAFETY: the caller's promise: the last vector ends there.
    let data = unsafe { array(data, extent, name) }?;
    HeadRows::new(data, sizes, strides).ok_or(CallError::TooLarge(name))
}

/// Computes attention. For head h and row r, q is the query; k and v are the keys and values of its
/// KV head:
///
///     s[n] = scale * (q . k[n])              with softcap c: c * tanh(s[n] / c)
///     s[n] = s[n] + slopes[h] * mask[r][n]
///     p[n] = exp(s[n])
///     out  = sum of p[n] * v[n] / (sum of p[n] + exp(sinks[h]))
///
/// A row that sees no key gives zeros. A key or value that the mask hides from a row has no effect
/// on that row, even if it is a NaN. If a visible key or its value contains a NaN or infinity, the
/// row's result is NaN. Scores are rounded to binary16.
///
/// Returns ROCKET_NPU_STATUS_INVALID, and writes nothing, if sizes do not fit each other or
/// one NPU job cannot hold the keys.
///
/// # Safety
/// `engine` is null or not closed. `attention` is null or has pointers to as many elements as its
/// sizes and strides say. No other thread changes them, or accesses `out`, during the call; `out`
/// does not overlap another operand.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_attend(
    engine: *const RocketNpuEngine,
    attention: *const RocketNpuAttention,
) -> RocketNpuStatus {
    call(|| {
        // SAFETY: the caller's promise.
        let engine = unsafe { object(engine, "engine") }?;
        // SAFETY: the caller's promise.
        let a = *unsafe { object(attention, "attention") }?;
        // SAFETY: the caller's promise.
        let q = unsafe {
            let strides = [a.q_head_stride, a.q_row_stride];
            vectors(a.q, [a.heads, a.rows, a.head_dim], strides, "q")
        }?;
        // SAFETY: the caller's promise; a `f16` is a `u16` of any bits.
        let k = unsafe {
            let strides = [a.k_head_stride, a.k_row_stride];
            let sizes = [a.kv_heads, a.keys, a.head_dim];
            vectors(a.k.cast::<f16>(), sizes, strides, "k")
        }?;
        // SAFETY: the same.
        let v = unsafe {
            let strides = [a.v_head_stride, a.v_row_stride];
            let sizes = [a.kv_heads, a.keys, a.value_dim];
            vectors(a.v.cast::<f16>(), sizes, strides, "v")
        }?;
        // SAFETY: the same, where there is one.
        let mask = (!a.mask.is_null()).then(|| unsafe {
            let strides = [a.mask_head_stride, a.mask_row_stride];
            let sizes = [a.mask_heads, a.rows, a.keys];
            vectors(a.mask.cast::<f16>(), sizes, strides, "mask")
        });
        let per_head = |data: *const f32, name| {
            // SAFETY: the caller's promise.
            (!data.is_null()).then(|| unsafe { array(data, Some(a.heads), name) })
        };
        let slopes = per_head(a.slopes, "slopes").transpose()?;
        let sinks = per_head(a.sinks, "sinks").transpose()?;
        let out_len = a.rows.checked_mul(a.heads);
        let out_len = out_len.and_then(|vectors| vectors.checked_mul(a.value_dim));
        // SAFETY: the caller's promise.
        let out = unsafe { array_mut(a.out, out_len, "out") }?;
        let call = AttentionCall {
            q,
            k,
            v,
            mask: mask.transpose()?,
            sinks,
            slopes,
            scale: a.scale,
            key_scales: None,
            softcap: a.softcap,
            out,
        };
        let done = engine.engine.attend([call]);
        Ok(done.map_err(npu_matmul::Error::from)?)
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr;

    use super::*;
    use crate::{rocket_npu_close, rocket_npu_error, rocket_npu_open};

    /// Returns the error for operands with 2 heads that share one KV head, 3 rows, 5 keys and
    /// vectors of 4 elements, after `change`.
    fn refused(engine: *const RocketNpuEngine, change: impl Fn(&mut RocketNpuAttention)) -> String {
        const UNTOUCHED: f32 = 7.0;
        let q = [0.5_f32; 2 * 3 * 4];
        let kv = [f16::ONE.to_bits(); 5 * 4];
        let mask = [0_u16; 3 * 5];
        let mut out = [UNTOUCHED; 3 * 2 * 4];
        let mut operands = RocketNpuAttention {
            heads: 2,
            kv_heads: 1,
            rows: 3,
            keys: 5,
            head_dim: 4,
            value_dim: 4,
            q: q.as_ptr(),
            q_head_stride: 12,
            q_row_stride: 4,
            k: kv.as_ptr(),
            k_head_stride: 20,
            k_row_stride: 4,
            v: kv.as_ptr(),
            v_head_stride: 20,
            v_row_stride: 4,
            mask: mask.as_ptr(),
            mask_heads: 1,
            mask_head_stride: 0,
            mask_row_stride: 5,
            slopes: ptr::null(),
            sinks: ptr::null(),
            scale: 0.5,
            softcap: 0.0,
            out: out.as_mut_ptr(),
        };
        change(&mut operands);
        // SAFETY: an open engine or null, and operands that are refused, or of these sizes.
        match unsafe { rocket_npu_attend(engine, &raw const operands) } {
            RocketNpuStatus::Ok => {
                assert_eq!(out, [1.0; 24]);
                String::new()
            }
            status => {
                assert_eq!(status, RocketNpuStatus::Invalid);
                assert_eq!(out, [UNTOUCHED; 24]);
                // SAFETY: a NUL-terminated string that this thread keeps.
                let why = unsafe { CStr::from_ptr(rocket_npu_error()) };
                why.to_str().unwrap().to_owned()
            }
        }
    }

    #[test]
    fn operands_that_make_no_sense_are_refused() {
        const MANY: usize = usize::MAX;
        let mut engine = ptr::null_mut();
        // SAFETY: a string, and a place that may be written.
        let opened = unsafe { rocket_npu_open(c"model".as_ptr(), &raw mut engine) };
        assert_eq!(opened, RocketNpuStatus::Ok);
        let refused_for = |change: fn(&mut RocketNpuAttention)| refused(engine, change);
        assert_eq!(refused_for(|_| ()), "");
        assert_eq!(refused_for(|a| a.mask = ptr::null()), "");
        assert_eq!(refused(ptr::null(), |_| ()), "engine is null");
        // SAFETY: an open engine, and a null pointer, which is refused.
        let status = unsafe { rocket_npu_attend(engine, ptr::null()) };
        assert_eq!(status, RocketNpuStatus::Invalid);

        let cases: [(_, fn(&mut RocketNpuAttention)); 18] = [
            ("q is null", |a| a.q = ptr::null()),
            ("k is null", |a| a.k = ptr::null()),
            ("v is null", |a| a.v = ptr::null()),
            ("out is null", |a| a.out = ptr::null_mut()),
            ("q is not aligned to its elements", |a| {
                a.q = a.q.wrapping_byte_add(2)
            }),
            ("v is not aligned", |a| a.v = a.v.wrapping_byte_add(1)),
            ("mask is not aligned", |a| {
                a.mask = a.mask.wrapping_byte_add(1)
            }),
            ("sinks is not aligned", |a| {
                a.sinks = a.q.wrapping_byte_add(1)
            }),
            ("out is not aligned", |a| a.out = a.out.wrapping_byte_add(1)),
            ("q is larger than the address space", |a| {
                a.q_head_stride = MANY
            }),
            ("k is larger", |a| a.k_row_stride = MANY / 4),
            ("v is larger", |a| a.v_row_stride = MANY / 8),
            ("mask is larger", |a| a.mask_row_stride = MANY),
            ("out is larger", |a| {
                (a.rows, a.q_row_stride, a.mask_row_stride) = (MANY, 0, 0);
            }),
            ("Q's number of heads is 2", |a| {
                (a.kv_heads, a.k_head_stride, a.v_head_stride) = (3, 0, 0);
            }),
            ("the mask's number of heads is 0", |a| a.mask_heads = 0),
            ("the mask's number of heads", |a| {
                (a.mask_heads, a.mask_head_stride) = (MANY, 0);
            }),
            // More keys than one job can hold, though the memory exists.
            ("1073741824 keys", |a| {
                (a.keys, a.k_row_stride, a.v_row_stride) = (1 << 30, 0, 0);
                a.mask = ptr::null();
            }),
        ];
        for (told, change) in cases {
            let refused = refused_for(change);
            assert!(refused.contains(told), "{refused}");
        }
        // SAFETY: opened above and not used afterwards.
        unsafe { rocket_npu_close(engine) };
    }
}
