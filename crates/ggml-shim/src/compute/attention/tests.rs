// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares attention on the software model with ggml's definition in binary64.

use npu_matmul::attention::AttentionShape;
use proptest::prelude::*;

use super::*;
use crate::compute::matmul::tests::{OPENED, ORDERS, SCRATCH, TestTensor, dense, lay_out};
use crate::decide::offload::AttentionParams;
use crate::ggml::types::tests::{BF16, Q8_0};

/// Largest normalised mean square error.
const MOST_NMSE: f64 = 1e-5;

/// An attention to build.
#[derive(Debug, Clone, Copy)]
struct Case {
    shape: AttentionOffload,
    /// Type of keys and values.
    cache: u32,
    is_masked: bool,
    has_sinks: bool,
    /// Whether the values are the first channels of the keys.
    is_part: bool,
    /// The order of dimensions 1 to 3 of all operands, and elements behind each row.
    layout: ([usize; 3], usize),
    /// Factors of keys and values.
    magnitudes: [f32; 2],
    /// Another factor of them in the last head and in the last stream.
    last_factors: [f32; 2],
    /// What a key and its value hold that the mask hides from all rows.
    hidden: Option<f32>,
}

const PLAIN: Case = Case {
    shape: AttentionOffload {
        batch: AttentionShape {
            heads: 4,
            kv_heads: 2,
            rows: 5,
            keys: 7,
            head_dim: 32,
            value_dim: 64,
            window: None,
        },
        streams: 1,
        kv_streams: 1,
        mask: [1, 1],
        params: AttentionParams {
            scale: 0.5,
            max_bias: 0.0,
            softcap: 0.0,
        },
    },
    cache: type_id::F16,
    is_masked: true,
    has_sinks: false,
    is_part: false,
    layout: ([2, 1, 3], 0),
    magnitudes: [1.0, 1.0],
    last_factors: [1.0, 1.0],
    hidden: None,
};

/// The key that [`Case::hidden`] is about.
const HIDDEN: usize = 4;

/// Numbers from -1 to 1 in steps of 1/64, which each type represents exactly.
fn number(seed: usize, [a, b, c, d]: [usize; 4]) -> f32 {
    let mixed = ((seed + 31 * a + 101 * b + 57 * c + 23 * d) * 2_654_435_761) >> 7;
    f32::from(i16::try_from(mixed % 129).unwrap()) / 64.0 - 1.0
}

fn mask(at @ [key, row, ..]: [usize; 4]) -> f32 {
    // The mask hides all keys from row 3.
    if row == 3 || (key + 2 * row).is_multiple_of(3) {
        f32::NEG_INFINITY
    } else {
        number(4, at)
    }
}

fn sink(head: usize) -> f32 {
    2.0 * number(5, [head, 0, 0, 0])
}

/// Rounds to FP16.
fn rounded(value: f32) -> f32 {
    f16::from_f32(value).into()
}

/// The operands of a case.
struct CaseData {
    queries: TestTensor,
    keys: TestTensor,
    values: TestTensor,
    mask: TestTensor,
    sinks: TestTensor,
}

impl Case {
    /// Divided by what the keys are multiplied by, so that scores do not depend on it.
    fn query(&self, at @ [.., head, stream]: [usize; 4]) -> f32 {
        2.0 * number(1, at) / self.cache_factor([0, 0, self.kv_head(head), self.kv_stream(stream)])
    }

    const fn kv_head(&self, head: usize) -> usize {
        head * self.shape.batch.kv_heads / self.shape.batch.heads
    }

    const fn kv_stream(&self, stream: usize) -> usize {
        stream * self.shape.kv_streams / self.shape.streams
    }

    fn mask(&self, at: [usize; 4]) -> f32 {
        match self.hidden {
            Some(_) if at[0] == HIDDEN => f32::NEG_INFINITY,
            _ => mask(at),
        }
    }

    /// The factor of the keys and values of this KV head and stream of the cache.
    fn cache_factor(&self, [.., head, stream]: [usize; 4]) -> f32 {
        let is_last = [
            head + 1 == self.shape.batch.kv_heads,
            stream + 1 == self.shape.kv_streams,
        ];
        let factors = is_last.iter().zip(self.last_factors);
        factors
            .map(|(&is_last, factor)| if is_last { factor } else { 1.0 })
            .product()
    }

    fn key(&self, at: [usize; 4]) -> f32 {
        match self.hidden {
            Some(hidden) if at[1] == HIDDEN => hidden,
            _ => self.magnitudes[0] * self.cache_factor(at) * number(2, at),
        }
    }

    fn value(&self, at: [usize; 4]) -> f32 {
        match self.hidden {
            Some(hidden) if at[1] == HIDDEN => hidden,
            _ if self.is_part => self.key(at),
            _ => self.magnitudes[1] * self.cache_factor(at) * number(3, at),
        }
    }

    /// The outputs by the definition, in ggml's order.
    fn reference(&self) -> Vec<f64> {
        let AttentionOffload {
            batch,
            streams,
            mask: [mask_heads, mask_streams],
            params,
            ..
        } = self.shape;
        let (heads, keys) = (batch.heads, batch.keys);
        let below = f64::from(heads.ilog2()).exp2();
        let slope = |head: usize| {
            let (bias, at) = (f64::from(params.max_bias), head as f64);
            if bias <= 0.0 {
                1.0
            } else if at < below {
                (-bias / below * (at + 1.0)).exp2()
            } else {
                (-bias / 2.0 / below * (2.0 * (at - below) + 1.0)).exp2()
            }
        };
        let mut out = Vec::new();
        for stream in 0..streams {
            for row in 0..batch.rows {
                for head in 0..heads {
                    let kv = [self.kv_head(head), self.kv_stream(stream)];
                    let score = |key: usize| {
                        let term = |c: usize| {
                            f64::from(self.query([c, row, head, stream]))
                                * f64::from(self.key([c, key, kv[0], kv[1]]))
                        };
                        let dot: f64 = (0..batch.head_dim).map(term).sum();
                        let mut score = dot * f64::from(params.scale);
                        if params.softcap != 0.0 {
                            let cap = f64::from(params.softcap);
                            score = cap * (score / cap).tanh();
                        }
                        if self.is_masked {
                            let at = [key, row, head % mask_heads, stream % mask_streams];
                            score += slope(head) * f64::from(rounded(self.mask(at)));
                        }
                        score.exp()
                    };
                    let weights: Vec<f64> = (0..keys).map(score).collect();
                    let mut sum: f64 = weights.iter().sum();
                    if self.has_sinks {
                        sum += f64::from(sink(head)).exp();
                    }
                    out.extend((0..batch.value_dim).map(|c| {
                        let term = |(key, weight): (usize, &f64)| {
                            weight * f64::from(self.value([c, key, kv[0], kv[1]]))
                        };
                        let mixed: f64 = weights.iter().enumerate().map(term).sum();
                        if sum == 0.0 { 0.0 } else { mixed / sum }
                    }));
                }
            }
        }
        out
    }

    /// Keys or values.
    fn cached(&self, len: usize, value: impl Fn([usize; 4]) -> f32) -> TestTensor {
        let (batch, (order, gap)) = (&self.shape.batch, self.layout);
        let ne = [len, batch.keys, batch.kv_heads, self.shape.kv_streams];
        lay_out(self.cache, ne, order, gap, value)
    }

    fn data(&self) -> CaseData {
        let (batch, (order, gap)) = (&self.shape.batch, self.layout);
        let [mask_heads, mask_streams] = self.shape.mask;
        let queries = [batch.head_dim, batch.rows, batch.heads, self.shape.streams];
        let masks = [batch.keys, batch.rows, mask_heads, mask_streams];
        CaseData {
            queries: lay_out(type_id::F32, queries, order, gap, |at| self.query(at)),
            keys: self.cached(batch.head_dim, |at| self.key(at)),
            values: self.cached(batch.value_dim, |at| self.value(at)),
            mask: lay_out(type_id::F16, masks, order, gap, |at| self.mask(at)),
            sinks: dense(type_id::F32, [batch.heads, 1, 1, 1], |[head, ..]| {
                sink(head)
            }),
        }
    }

    fn node<'a>(&self, data: &'a CaseData, out: &'a mut [f32]) -> AttentionNode<'a> {
        let mut values = data.values.rows();
        if self.is_part {
            let keys = data.keys.rows();
            (values.bytes, values.tensor.nb) = (keys.bytes, keys.tensor.nb);
        }
        AttentionNode {
            shape: self.shape,
            queries: data.queries.rows(),
            keys: data.keys.rows(),
            values,
            mask: self.is_masked.then(|| data.mask.rows()),
            sinks: self.has_sinks.then(|| data.sinks.rows()),
            out: NodeOutput::InPlace(out),
            errors: Some(OutputErrors::default()),
        }
    }

    /// Computes the case. Returns the outputs and the errors that verifying found.
    fn run(&self) -> (Vec<f32>, OutputErrors) {
        let data = self.data();
        let mut out = vec![f32::NAN; self.shape.outputs()];
        let mut nodes = [self.node(&data, &mut out)];
        compute(&OPENED.engine, &SCRATCH, &mut nodes, &|| false).unwrap();
        let errors = nodes[0].errors.unwrap();
        (out, errors)
    }

    /// Computes the case and compares it with the definition.
    fn check(&self) {
        let (out, errors) = self.run();
        let exact = self.reference();
        assert_eq!(out.len(), exact.len());
        let pairs = || out.iter().map(|out| f64::from(*out)).zip(&exact);
        // Of each head in each stream, since they may have other magnitudes.
        let AttentionShape {
            heads,
            rows,
            value_dim,
            ..
        } = self.shape.batch;
        let mut sums = vec![[0.0; 2]; heads * self.shape.streams];
        for (at, (out, exact)) in pairs().enumerate() {
            let head = at / value_dim % heads + at / (value_dim * heads * rows) * heads;
            sums[head][0] += (out - exact).powi(2);
            sums[head][1] += exact * exact;
        }
        for [apart, energy] in sums {
            assert!(apart <= MOST_NMSE * energy, "{self:?}: {}", apart / energy);
        }
        // Rows without a key are zero, not nearly so.
        assert!(
            pairs().all(|(out, exact)| *exact != 0.0 || out == 0.0),
            "{self:?}"
        );
        assert!(errors.nmse() <= MOST_NMSE, "{self:?}: {}", errors.nmse());
    }
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    #[test]
    fn any_layout_and_sharing_equals_the_definition(
        rows in 1..6_usize, keys in 1..20_usize,
        kv_heads in 1..3_usize, group in 1..4_usize,
        kv_streams in 1..3_usize, repeats in 1..3_usize,
        d in 1..3_usize, dv in 1..3_usize,
        masks in (any::<bool>(), any::<bool>(), any::<bool>()), has_sinks: bool, is_part: bool,
        max_bias in prop_oneof![Just(0.0_f32), Just(8.0)],
        softcap in prop_oneof![Just(0.0_f32), Just(0.5), Just(3.0)],
        order in 0..ORDERS.len(), gap in 0..3_usize, cache in 0..4_usize,
    ) {
        let (heads, streams) = (kv_heads * group, kv_streams * repeats);
        let (is_masked, by_head, by_stream) = masks;
        let case = Case {
            shape: AttentionOffload {
                batch: AttentionShape {
                    heads,
                    kv_heads,
                    rows,
                    keys,
                    head_dim: 32 * d,
                    value_dim: 32 * dv,
                    window: None,
                },
                streams,
                kv_streams,
                mask: [if by_head { heads } else { 1 }, if by_stream { streams } else { 1 }],
                params: AttentionParams { max_bias, softcap, ..PLAIN.shape.params },
            },
            cache: [type_id::F32, type_id::F16, BF16, Q8_0][cache],
            is_masked,
            has_sinks,
            // A cache of compressed keys: values are their first channels, and are rounded once.
            is_part: is_part && dv <= d,
            layout: (ORDERS[order], gap),
            ..PLAIN
        };
        case.check();
    }
}

/// FP16 ends at 65504, and has few bits below 2^-14.
#[test]
fn keys_and_values_beyond_fp16_are_scaled() {
    let mut case = PLAIN;
    for (cache, [key, value]) in [
        (type_id::F32, [1e6, 1.0]),
        (type_id::F32, [1e-9, 1e-9]),
        (BF16, [1.0, 3.2e30]),
        (type_id::F32, [1e9, 1e30]),
    ] {
        case.cache = cache;
        // Powers of two, which BF16 represents exactly.
        case.magnitudes = [key, value].map(|size: f32| size.log2().round().exp2());
        case.shape.params.scale = 1.0 / case.magnitudes[0];
        case.check();
    }
}

/// The numbers of the others keep all their bits, whatever one head or stream holds.
#[test]
fn heads_and_streams_have_their_own_factors() {
    let large = 33_f32.exp2();
    for (cache, last_factors) in [
        (type_id::F32, [large, 1.0]),
        (type_id::F32, [1.0, large]),
        (type_id::F32, [large, 1.0 / large]),
        (BF16, [large, large]),
        (BF16, [1.0 / large, large]),
    ] {
        for is_part in [false, true] {
            let mut case = Case {
                cache,
                last_factors,
                is_part,
                ..PLAIN
            };
            (case.shape.streams, case.shape.kv_streams) = (4, 2);
            case.shape.batch.value_dim = case.shape.batch.head_dim;
            case.check();
        }
    }
}

/// In each cache type.
#[test]
fn masked_keys_change_nothing() {
    for cache in [type_id::F32, type_id::F16, BF16, Q8_0] {
        for is_part in [false, true] {
            let with = |hidden| {
                let mut case = Case {
                    cache,
                    is_part,
                    hidden: Some(hidden),
                    ..PLAIN
                };
                case.shape.batch.value_dim = case.shape.batch.head_dim;
                case
            };
            with(0.0).check();
            let (zeros, _) = with(0.0).run();
            for hidden in [1e10, 1e30, f32::INFINITY, f32::NAN] {
                assert_eq!(with(hidden).run().0, zeros, "{hidden} in {cache}");
            }
        }
    }
}

#[test]
fn several_nodes_are_computed_at_once_and_an_error_names_its_own() {
    let data = PLAIN.data();
    let (alone, _) = PLAIN.run();
    let bytes = data.values.rows().bytes;
    let compute_with = |bytes| {
        let [mut first, mut second] = [(); 2].map(|()| vec![f32::NAN; alone.len()]);
        let mut nodes = [
            PLAIN.node(&data, &mut first),
            PLAIN.node(&data, &mut second),
        ];
        nodes[1].values.bytes = bytes;
        compute(&OPENED.engine, &SCRATCH, &mut nodes, &|| false)?;
        Ok::<_, FailedNode>([first, second])
    };
    let [first, second] = compute_with(bytes).unwrap();
    assert!(first == alone && second == alone);
    let error = compute_with(&bytes[..bytes.len() - 2]).unwrap_err();
    assert_eq!(error.call, 1);
    assert!(
        matches!(error.error, NodeFailure::Data("values")),
        "{error:?}"
    );
}
