// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operands of attention, and how near a result is.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

use half::f16;
use npu_matmul::attention::{AttentionCall, HeadRows, reference};

/// Numbers that look random, the same each time.
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

    /// Normally distributed, of variance 1.
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
    /// The same, and no further back than so many.
    Window(usize),
    /// Row and key belong to one of so many sequences.
    Sequences(usize),
    /// As causal, but every third row sees nothing.
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

#[derive(Clone, Debug)]
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
    k: Vec<f16>,
    v: Vec<f16>,
    mask: Vec<f16>,
    sinks: Vec<f32>,
    slopes: Vec<f32>,
    pub(crate) out: Vec<f32>,
}

impl Operands {
    pub(crate) fn new(case: &Case, seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let c = case.clone();
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

    /// As ggml has them: the heads of a row of Q lie together, and so do those of a key.
    pub(crate) fn call(&mut self) -> AttentionCall<'_> {
        let c = &self.case;
        let of_rows = |heads: usize, dim: usize| [dim, heads * dim];
        AttentionCall {
            q: HeadRows::new(
                &self.q,
                [c.heads, c.rows, c.head_dim],
                of_rows(c.heads, c.head_dim),
            )
            .unwrap(),
            k: HeadRows::new(
                &self.k,
                [c.kv_heads, c.keys, c.head_dim],
                of_rows(c.kv_heads, c.head_dim),
            )
            .unwrap(),
            v: HeadRows::new(
                &self.v,
                [c.kv_heads, c.keys, c.value_dim],
                of_rows(c.kv_heads, c.value_dim),
            )
            .unwrap(),
            mask: (c.mask != Mask::None).then(|| {
                HeadRows::contiguous(&self.mask, c.mask.heads(c.heads), c.rows, c.keys).unwrap()
            }),
            sinks: c.sinks.then_some(&self.sinks),
            slopes: c.alibi.then_some(&self.slopes),
            scale: c.logits / (c.head_dim.max(1) as f32).sqrt(),
            softcap: c.softcap,
            out: &mut self.out,
        }
    }

    /// Of all rows and keys.
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

    /// Of the result against the definition: squared error over squared result.
    pub(crate) fn nmse(&mut self) -> f64 {
        let expected = reference(&self.call());
        let error = self
            .out
            .iter()
            .zip(&expected)
            .map(|(&x, e)| (f64::from(x) - e).powi(2));
        let (error, power): (f64, f64) = (error.sum(), expected.iter().map(|e| e * e).sum());
        if power == 0.0 { error } else { error / power }
    }
}
