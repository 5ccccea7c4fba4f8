// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fast Walsh-Hadamard transform of blocks of a row.
//!
//! H(1) = 1, H(2n) = [H(n) H(n); H(n) -H(n)], scaled by 1 / sqrt(n). The transform is orthonormal
//! and its own inverse. The dot product of two transformed operands equals that of the operands; an
//! outlier is spread over its block.

mod lanes;

use lanes::{LANES, Lanes, Vector};

/// A transform of one block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hadamard {
    /// log2 of the block size.
    stages: u32,
}

impl Hadamard {
    /// The largest block: 16 KiB, which stays in the first-level cache during all stages.
    pub const MAX_BLOCK: usize = 4096;

    /// The transform for blocks of `block` elements; `None` unless that is a power of two up to
    /// [`Hadamard::MAX_BLOCK`].
    #[must_use]
    pub const fn new(block: usize) -> Option<Self> {
        if !block.is_power_of_two() || block > Self::MAX_BLOCK {
            return None;
        }
        let stages = block.trailing_zeros();
        Some(Self { stages })
    }

    /// The largest transform whose blocks divide a row of `len` elements; `None` for an empty row.
    #[must_use]
    pub fn dividing(len: usize) -> Option<Self> {
        let stages = len.trailing_zeros().min(Self::MAX_BLOCK.trailing_zeros());
        (len > 0).then_some(Self { stages })
    }

    /// Elements of a block.
    #[must_use]
    pub const fn block(self) -> usize {
        1 << self.stages
    }

    /// Transforms each block of a row. Elements behind the last whole block are unchanged.
    pub fn transform(self, row: &mut [f32]) {
        let scale = (1.0 / f64::from(self.block() as u32).sqrt()) as f32;
        for block in row.chunks_exact_mut(self.block()) {
            if block.len() < LANES {
                reference(block, scale);
            } else {
                transform_block(block, scale);
            }
        }
    }
}

/// The definition: stage by stage, then the scale.
fn reference(block: &mut [f32], scale: f32) {
    let mut half = 1;
    while half < block.len() {
        for pair in block.chunks_exact_mut(2 * half) {
            let (left, right) = pair.split_at_mut(half);
            for (a, b) in left.iter_mut().zip(right) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    for x in block {
        *x *= scale;
    }
}

fastest! {
    /// Transforms one block of at least [`LANES`] elements. Runs the stages of [`reference`] in
    /// order, up to three at a time in registers. Each sum adds the same two numbers as there.
    fn transform_block(block: &mut [f32], scale: f32) {
        let (vectors, _) = block.as_chunks_mut::<LANES>();
        let count = vectors.len();
        let mut half = match count {
            0 | 1 => pass::<1, true>(vectors, 1, if count == 1 { scale } else { 1.0 }),
            2 => pass::<2, true>(vectors, 1, scale),
            4 => pass::<4, true>(vectors, 1, scale),
            _ => pass::<8, true>(vectors, 1, if count == 8 { scale } else { 1.0 }),
        };
        while half < count {
            half = match count / half {
                2 => pass::<2, false>(vectors, half, scale),
                4 => pass::<4, false>(vectors, half, scale),
                left => pass::<8, false>(vectors, half, if left == 8 { scale } else { 1.0 }),
            };
        }
    }
}

/// Runs log2(R) stages; partners of the first are `half` vectors apart. If `WITHIN`, it first runs
/// the stages inside a vector. Returns `half` of the next stage.
#[inline(always)]
fn pass<const R: usize, const WITHIN: bool>(
    vectors: &mut [Vector],
    half: usize,
    scale: f32,
) -> usize {
    for group in vectors.chunks_exact_mut(R * half) {
        let mut rest = group;
        // The compiler knows that these slices have one length: no check inside the loop.
        let mut parts: [&mut [Vector]; R] = std::array::from_fn(|_| {
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(half);
            rest = tail;
            part
        });
        for at in 0..half {
            let mut v: [Lanes; R] = std::array::from_fn(|r| Lanes::new(parts[r][at]));
            if WITHIN {
                v = v.map(Lanes::stages_within);
            }
            let mut apart = 1;
            while apart < R {
                for r in 0..R {
                    if r & apart == 0 {
                        (v[r], v[r + apart]) = v[r].butterfly(v[r + apart]);
                    }
                }
                apart *= 2;
            }
            for (part, v) in parts.iter_mut().zip(v) {
                part[at] = v.scaled(scale);
            }
        }
    }
    half * R
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCKS: [usize; 13] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

    fn row(len: usize, seed: &[f32]) -> Vec<f32> {
        (0..len)
            .map(|at| seed[at % seed.len()] * ((at % 11) as f32 - 4.5))
            .collect()
    }

    proptest! {
        #![proptest_config(test_support::cases(32))]

        #[test]
        fn bit_by_bit_the_reference(seed in prop::collection::vec(-1e6_f32..1e6, 1..77)) {
            for block in BLOCKS {
                let transform = Hadamard::new(block).unwrap();
                let mut fast = row(3 * block + block / 2, &seed);
                let mut slow = fast.clone();
                transform.transform(&mut fast);
                let scale = (1.0 / (block as f64).sqrt()) as f32;
                slow.chunks_exact_mut(block).for_each(|block| reference(block, scale));
                let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(&fast), bits(&slow), "block {}", block);
            }
        }
    }

    #[test]
    fn a_unit_vector_becomes_a_row_of_the_matrix() {
        for block in BLOCKS {
            for at in [0, block / 2, block - 1] {
                let mut unit = vec![0.0; block];
                unit[at] = 1.0;
                Hadamard::new(block).unwrap().transform(&mut unit);
                for (column, x) in unit.into_iter().enumerate() {
                    // Sylvester's matrix: the parity of the common bits.
                    let sign = if (at & column).count_ones() % 2 == 0 {
                        1.0
                    } else {
                        -1.0
                    };
                    let expected = sign * (1.0 / (block as f64).sqrt()) as f32;
                    assert_eq!(x, expected);
                }
            }
        }
    }

    #[test]
    fn sizes() {
        for bad in [0, 3, 12, 8192] {
            assert_eq!(Hadamard::new(bad), None);
        }
        let block = |len| Hadamard::dividing(len).map(Hadamard::block);
        assert_eq!(block(0), None);
        assert_eq!(block(7), Some(1));
        assert_eq!(block(11008), Some(256));
        assert_eq!(block(1 << 20), Some(4096));
    }
}
