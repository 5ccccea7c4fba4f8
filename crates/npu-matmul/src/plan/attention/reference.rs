// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reference implementation of attention, in float64.

use half::f16;

use super::call::AttentionCall;

/// Computes the result of `call`, in the layout of its `out`, which is not changed.
///
/// # Panics
/// If the operands do not fit each other; [`Engine::attend`](crate::Engine::attend) returns an
/// error instead.
#[must_use]
pub fn reference(call: &AttentionCall<'_>) -> Vec<f64> {
    let (rows, heads) = (call.q.rows(), call.q.heads());
    let mut out = Vec::with_capacity(call.out.len());
    for row in 0..rows {
        for head in 0..heads {
            out.extend(row_of_head(call, head, row));
        }
    }
    out
}

fn row_of_head(call: &AttentionCall<'_>, head: usize, row: usize) -> Vec<f64> {
    let kv_head = head / call.batch().group();
    let keys = call.k.rows();
    let scores: Vec<_> = (0..keys).map(|n| score(call, head, row, n)).collect();
    let sink = call.sinks.map_or(f64::NEG_INFINITY, |s| f64::from(s[head]));
    let most = scores.iter().copied().fold(sink, f64::max);
    let mut out = vec![0.0; call.v.vector_len()];
    if most == f64::NEG_INFINITY {
        return out;
    }
    let mut sum = (sink - most).exp();
    for (n, score) in scores.into_iter().enumerate() {
        let p = (score - most).exp();
        sum += p;
        // A zero weight hides any value, even a NaN.
        if p > 0.0 {
            for (out, v) in out.iter_mut().zip(call.v.vector(kv_head, n)) {
                *out += p * v.to_f64();
            }
        }
    }
    for x in &mut out {
        *x /= sum;
    }
    out
}

/// Score of a key, after softcap and mask.
fn score(call: &AttentionCall<'_>, head: usize, row: usize, key: usize) -> f64 {
    let mask = call
        .mask
        .as_ref()
        .map_or(f16::ZERO, |mask| mask.vector(head % mask.heads(), row)[key]);
    if mask == f16::NEG_INFINITY {
        return f64::NEG_INFINITY;
    }
    let q = call.q.vector(head, row);
    let k = call.k.vector(head / call.batch().group(), key);
    let dot: f64 = q
        .iter()
        .zip(k)
        .map(|(&q, k)| f64::from(q) * k.to_f64())
        .sum();
    let scaled = f64::from(call.scale_of(head)) * dot;
    let capped = match f64::from(call.softcap) {
        0.0 => scaled,
        cap => cap * (scaled / cap).tanh(),
    };
    let slope = call.slopes.map_or(1.0, |slopes| f64::from(slopes[head]));
    capped + slope * mask.to_f64()
}
