// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operands of attention, and checks of results.

use half::f16;
use npu_matmul::attention::{AttentionCall, HeadRows, reference};
use npu_matmul::quantise::nmse;

/// Pseudo-random numbers, the same in each run.
struct Numbers(u64);

impl Numbers {
    /// Between 0 and 1.
    fn unit(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normally distributed with variance 1.
    fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        (radius * (std::f64::consts::TAU * self.unit()).cos()) as f32
    }

    fn halves(&mut self, count: usize) -> Vec<f16> {
        (0..count).map(|_| f16::from_f32(self.normal())).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mask {
    None,
    /// The rows are the last ones of the keys.
    Causal,
    /// Causal, limited to this number of the last keys.
    Window(usize),
    /// Row and key each belong to one of this number of sequences.
    Sequences(usize),
    /// Causal, but every third row sees nothing.
    EmptyRows,
    /// Any numbers, one mask for each head.
    AnyOfHeads,
}

impl Mask {
    fn heads(self, heads: usize) -> usize {
        match self {
            Self::AnyOfHeads => heads,
            _ => 1,
        }
    }

    fn at(self, row: usize, key: usize, before: usize, numbers: &mut Numbers) -> f16 {
        let causal = key <= row + before;
        let is_seen = match self {
            Self::None => true,
            Self::Causal => causal,
            Self::Window(keys) => causal && key + keys > row + before,
            Self::Sequences(count) => row % count == key / 40 % count,
            Self::EmptyRows => causal && row % 3 != 1,
            Self::AnyOfHeads => {
                return match numbers.unit() {
                    x if x < 0.3 => f16::NEG_INFINITY,
                    _ => f16::from_f32(numbers.normal()),
                };
            }
        };
        if is_seen {
            f16::ZERO
        } else {
            f16::NEG_INFINITY
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) rows: usize,
    pub(crate) keys: usize,
    pub(crate) head_dim: usize,
    pub(crate) value_dim: usize,
    pub(crate) mask: Mask,
    pub(crate) alibi: bool,
    pub(crate) softcap: f32,
    pub(crate) sinks: bool,
    /// Standard deviation of the logits.
    pub(crate) logits: f32,
}

pub(crate) const CASE: Case = Case {
    heads: 4,
    kv_heads: 2,
    rows: 33,
    keys: 70,
    head_dim: 64,
    value_dim: 64,
    mask: Mask::Causal,
    alibi: false,
    softcap: 0.0,
    sinks: false,
    logits: 1.0,
};

/// Operands of a case, and its result.
pub(crate) struct Operands {
    case: Case,
    pub(crate) q: Vec<f32>,
    pub(crate) k: Vec<f16>,
    pub(crate) v: Vec<f16>,
    mask: Vec<f16>,
    pub(crate) sinks: Vec<f32>,
    slopes: Vec<f32>,
    pub(crate) out: Vec<f32>,
}

impl Operands {
    pub(crate) fn new(case: &Case, seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let c = *case;
        let before = c.keys.saturating_sub(c.rows);
        let mut mask = Vec::new();
        for _ in 0..c.mask.heads(c.heads) {
            for row in 0..c.rows {
                mask.extend((0..c.keys).map(|key| c.mask.at(row, key, before, &mut numbers)));
            }
        }
        Self {
            q: (0..c.heads * c.rows * c.head_dim)
                .map(|_| numbers.normal())
                .collect(),
            k: numbers.halves(c.kv_heads * c.keys * c.head_dim),
            v: numbers.halves(c.kv_heads * c.keys * c.value_dim),
            mask,
            sinks: (0..c.heads).map(|_| numbers.normal()).collect(),
            slopes: (0..c.heads)
                .map(|head| 0.5_f32.powi(head as i32 + 1))
                .collect(),
            out: vec![f32::NAN; c.rows * c.heads * c.value_dim],
            case: c,
        }
    }

    /// A call with ggml's layout: the heads of a row of Q are adjacent, and so are those of a key.
    pub(crate) fn call(&mut self) -> AttentionCall<'_> {
        fn rows<T>(data: &[T], heads: usize, rows: usize, dim: usize) -> HeadRows<'_, T> {
            HeadRows::new(data, [heads, rows, dim], [dim, heads * dim]).unwrap()
        }
        let c = &self.case;
        AttentionCall {
            q: rows(&self.q, c.heads, c.rows, c.head_dim),
            k: rows(&self.k, c.kv_heads, c.keys, c.head_dim),
            v: rows(&self.v, c.kv_heads, c.keys, c.value_dim),
            mask: (c.mask != Mask::None).then(|| {
                HeadRows::contiguous(&self.mask, c.mask.heads(c.heads), c.rows, c.keys).unwrap()
            }),
            sinks: c.sinks.then_some(&self.sinks),
            slopes: c.alibi.then_some(&self.slopes),
            scale: c.logits / (c.head_dim.max(1) as f32).sqrt(),
            key_scales: None,
            softcap: c.softcap,
            out: &mut self.out,
        }
    }

    /// Whether a row of a head sees a key.
    pub(crate) fn is_seen(&mut self, head: usize, row: usize, key: usize) -> bool {
        let mask = self.call().mask;
        mask.is_none_or(|mask| mask.vector(head % mask.heads(), row)[key] != f16::NEG_INFINITY)
    }

    /// The largest logit of all rows and keys.
    pub(crate) fn largest_logit(&mut self) -> f32 {
        let call = self.call();
        let group = call.q.heads() / call.k.heads();
        let rows = 0..call.q.rows() * call.q.heads();
        let vectors = rows.map(|at| {
            let head = at % call.q.heads();
            (call.q.vector(head, at / call.q.heads()), head / group)
        });
        let dots = vectors.flat_map(|(q, kv_head)| {
            let keys = (0..call.k.rows()).map(move |key| call.k.vector(kv_head, key));
            keys.map(move |k| q.iter().zip(k).map(|(q, k)| q * k.to_f32()).sum::<f32>())
        });
        dots.fold(0.0, f32::max) * call.scale
    }

    /// Normalised error of the result: squared error over squared result of the definition.
    pub(crate) fn nmse(&mut self) -> f64 {
        let out: Vec<_> = self.out.iter().copied().map(f64::from).collect();
        nmse(&reference(&self.call()), &out)
    }

    /// Asserts that each element is within the bound of docs/attention.md.
    pub(crate) fn check_bound(&mut self) {
        let out = self.out.clone();
        let call = self.call();
        let expected = reference(&call);
        let (heads, dim) = (call.q.heads(), call.v.vector_len());
        // Some rows of each head, the first and the last among them.
        let all = expected.len() / dim.max(1);
        let compared = |at: &usize| at.is_multiple_of(all / 32 + 1) || at + heads >= all;
        for at in (0..all).filter(compared) {
            let expected = &expected[at * dim..][..dim];
            let (row, head) = (at / heads, at % heads);
            let bounds = bounds(&call, [head, row], expected);
            for (n, (&expected, bound)) in expected.iter().zip(bounds).enumerate() {
                let got = f64::from(out[at * dim + n]);
                let error = (got - expected).abs();
                assert!(
                    error <= bound,
                    "{got} {expected} {bound:e}: row {row}, {head}, {n}"
                );
            }
        }
    }
}

/// The mean of the keys that a row sees. The error that they have in common does not change the
/// result, unless scores are capped or there is a sink: then it counts, and the mean is 0.
fn center(call: &AttentionCall<'_>, [head, row, kv_head]: [usize; 3]) -> Vec<f64> {
    let mut center = vec![0.0; call.q.vector_len()];
    if call.softcap != 0.0 || call.sinks.is_some() {
        return center;
    }
    let mask = call.mask.map(|mask| mask.vector(head % mask.heads(), row));
    let is_seen = |n: &usize| mask.is_none_or(|mask| mask[*n] != f16::NEG_INFINITY);
    let seen: Vec<_> = (0..call.k.rows()).filter(is_seen).collect();
    for n in &seen {
        for (center, k) in center.iter_mut().zip(call.k.vector(kv_head, *n)) {
            *center += k.to_f64() / seen.len() as f64;
        }
    }
    center
}

/// Largest error of each element of a row of a head.
fn bounds(call: &AttentionCall<'_>, [head, row]: [usize; 2], expected: &[f64]) -> Vec<f64> {
    let kv_head = head * call.k.heads() / call.q.heads();
    let q = call.q.vector(head, row);
    let mask = call.mask.map(|mask| mask.vector(head % mask.heads(), row));
    let cap = f64::from(call.softcap);
    let slope = call.slopes.map_or(1.0, |slopes| f64::from(slopes[head]));
    let half = 2_f64.powi(-11);
    let largest_q = q.iter().map(|q| f64::from(q.abs())).fold(0.0, f64::max);
    let center = center(call, [head, row, kv_head]);

    let mut keys = Vec::new();
    for n in 0..call.k.rows() {
        let m = mask.map_or(0.0, |mask| mask[n].to_f64());
        if m == f64::NEG_INFINITY {
            continue;
        }
        let k = call.k.vector(kv_head, n);
        let products = q.iter().zip(k).map(|(&q, k)| f64::from(q) * k.to_f64());
        let (dot, sum) = products.fold((0.0, 0.0), |(d, s), x| (d + x, s + x.abs()));
        let scale = f64::from(call.scale);
        let (score, sum) = (scale * dot, scale * sum);
        let capped = if cap == 0.0 {
            score
        } else {
            cap * (score / cap).tanh()
        };
        let last = capped + slope * m;
        let largest = score.abs().max(capped.abs()).max(last.abs());
        let distances = q.iter().zip(k).zip(&center);
        let distance: f64 = distances
            .map(|((&q, k), center)| (f64::from(q) * (k.to_f64() - center)).abs())
            .sum();
        let norm: f64 = k.iter().map(|k| k.to_f64().abs()).sum();
        let error = half * scale.abs() * distance
            + 2_f64.powi(-20) * sum
            // Elements of Q that are subnormal in binary16.
            + 2_f64.powi(-32) * scale.abs() * largest_q * norm
            // The mask and the cap in binary32.
            + 2_f64.powi(-22) * largest
            + cap * 1e-6;
        keys.push((n, last, error));
    }
    if keys.is_empty() {
        return vec![0.0; expected.len()];
    }
    let most = keys
        .iter()
        .map(|key| key.1)
        .fold(f64::NEG_INFINITY, f64::max);
    let worst = keys.iter().map(|key| key.2).fold(0.0, f64::max);
    let e = worst + half + 1.1e-4;
    let sink = call
        .sinks
        .map_or(0.0, |sinks| (f64::from(sinks[head]) - most).exp());
    let total: f64 = keys.iter().map(|key| (key.1 - most).exp()).sum::<f64>() + sink;
    let blocks = (keys.len() as f64 / 64.0).ceil();
    let sums = 2.0 * (2_f64.powi(-20) + blocks * 2_f64.powi(-24));
    let element = |(at, out): (usize, &f64)| {
        // A sink is a key whose value is 0.
        let (mut spread, mut values, mut largest) = (sink / total * out.abs(), 0.0, 0.0_f64);
        for &(n, score, _) in &keys {
            let (w, v) = (
                (score - most).exp() / total,
                call.v.vector(kv_head, n)[at].to_f64(),
            );
            spread += w * (v - out).abs();
            values += w * v.abs();
            largest = largest.max(v.abs());
        }
        let tiny = keys.len() as f64 * 2_f64.powi(-38) * largest;
        ((2.0 * e).exp() - e.exp()) * spread + sums * values + tiny
    };
    expected.iter().enumerate().map(element).collect()
}
