// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels of 3x3 that move by single pixels, two lines of results at a time.
//!
//! Windows of both lines meet the same two pairs of lines, if the first of
//! them begins a pair. Two pixels beside each other are computed by four
//! products for each row of the kernel in place of six (S. Winograd's minimal
//! filtering F(2, 3)), with its halves left out: sums come doubled. For
//! features d and weights g
//!
//! ```text
//! 2*y0 = m0 + m1 + m2;  2*y1 = m1 - m2 + m3
//! m0 = (d0 - d2) * 2*g0;         m1 = (d1 + d2) * (g0 + g1 + g2)
//! m2 = (d2 - d1) * (g0 - g1 + g2);  m3 = (d3 - d1) * 2*g2
//! ```

use super::super::dpu::steps::{Finish, Steps};
use super::super::precision::ATOM;
use super::super::vectors::Vectors;
use super::taps::{NEIGHBOURS, Pairs, Sums, Weights};

/// Lines of results, and pairs of lines of features that they meet.
pub(super) const LINES: usize = 2;
/// Pixels of a tile in a line.
pub(super) const TILE: usize = 2;
/// Products for each row of the kernel, and places that they are made from.
pub(super) const PRODUCTS: usize = 4;
/// Largest magnitude of an addend: with any sum that [`Filters`] are made for
/// (less than 2^24) its double is an i32.
const ADDEND_MAX: u32 = 1 << 29;

/// What features are multiplied by: of each line of results, and in each of
/// the pairs of lines that it meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filters(pub(super) [[[Pairs; PRODUCTS]; LINES]; LINES]);

impl Filters {
    /// Of the weights for windows that begin with the first line of a pair,
    /// and with the second. `None` for another kernel than 3x3, and where a
    /// factor is no i16.
    pub(super) fn new(weights: &[Weights; LINES]) -> Option<Self> {
        let mut filters = [[[Pairs::default(); PRODUCTS]; LINES]; LINES];
        for (filters, weights) in filters.iter_mut().zip(weights) {
            let runs: &[_; LINES] = weights.runs.as_slice().try_into().ok()?;
            if !weights.singles.is_empty() {
                return None;
            }
            for (factors, run) in filters.iter_mut().zip(runs) {
                *factors = factors_of(run)?;
            }
        }
        Some(Self(filters))
    }
}

fn factors_of(run: &[Pairs; NEIGHBOURS]) -> Option<[Pairs; PRODUCTS]> {
    let mut factors = [Pairs::default(); PRODUCTS];
    for c in 0..ATOM {
        for line in 0..LINES {
            let [a, b, c2] = run.each_ref().map(|pairs| i32::from(pairs.0[c][line]));
            // No factor is larger than this sum or the double of a weight.
            if a.abs() + b.abs() + c2.abs() > i16::MAX.into() {
                return None;
            }
            let all = [2 * a, a + b + c2, a - b + c2, 2 * c2];
            for (factor, value) in factors.iter_mut().zip(all) {
                factor.0[c][line] = i16::try_from(value).ok()?;
            }
        }
    }
    Some(factors)
}

/// What becomes of doubled sums.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubled(pub(super) Finish);

impl Doubled {
    /// What makes of the double of a sum what `finish` makes of the sum: a
    /// float with twice the magnitude and half the factor rounds alike.
    pub(super) fn new(finish: &Finish) -> Option<Self> {
        let Finish { addends, steps, .. } = *finish;
        let factor = steps.factor / 2.0;
        let fits = addends.iter().all(|a| a.unsigned_abs() <= ADDEND_MAX);
        (fits && factor.is_normal()).then(|| {
            Self(Finish {
                addends: addends.map(|addend| 2 * addend),
                steps: Steps { factor, ..steps },
                ..*finish
            })
        })
    }
}

/// What two lines of results are computed from.
#[derive(Clone, Copy)]
pub(super) struct TwoLines<'a> {
    /// Both pairs of lines, from the place of the first pixel's first tap on:
    /// two more places than pixels, rounded up to whole tiles.
    pub(super) places: [&'a [Pairs]; LINES],
    pub(super) filters: &'a Filters,
    pub(super) finish: &'a Doubled,
}

impl TwoLines<'_> {
    /// Makes `out` the bytes of two lines of equal length.
    pub(super) fn bytes(&self, vectors: Vectors, out: [&mut [[u8; ATOM]]; LINES]) {
        match vectors {
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2(host) => super::x86::two_lines(host, self, out),
            _ => self.bytes_portably(out),
        }
    }

    /// The definition of [`Self::bytes`].
    fn bytes_portably(&self, out: [&mut [[u8; ATOM]]; LINES]) {
        for (line, out) in out.into_iter().enumerate() {
            for (index, out) in out.chunks_mut(TILE).enumerate() {
                let sums = self.tile(line, index * TILE);
                for (out, sums) in out.iter_mut().zip(&sums) {
                    *out = self.finish.0.bytes(sums);
                }
            }
        }
    }

    /// The doubled sums of a tile of a line, from a pixel on.
    #[inline]
    fn tile(&self, line: usize, pixel: usize) -> [Sums; TILE] {
        let mut sums = [[0; ATOM]; TILE];
        for (places, factors) in self.places.iter().zip(&self.filters.0[line]) {
            let places = &places[pixel..][..PRODUCTS];
            let [left, right] = &mut sums;
            for (c, (left, right)) in left.iter_mut().zip(right).enumerate() {
                for half in 0..LINES {
                    let d = |place: usize| i32::from(places[place].0[c][half]);
                    let m =
                        |product: usize, value: i32| value * i32::from(factors[product].0[c][half]);
                    let (m1, m2) = (m(1, d(1) + d(2)), m(2, d(2) - d(1)));
                    *left += m(0, d(0) - d(2)) + m1 + m2;
                    *right += m1 - m2 + m(3, d(3) - d(1));
                }
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::noise;
    use super::*;
    use proptest::prelude::*;

    /// Half of the weights reach to `reach` for certain.
    fn weights(reach: i32, next: &mut impl FnMut() -> u32) -> [Weights; LINES] {
        let mut weight = || match next() % 4 {
            0 => reach as i16,
            1 => -reach as i16,
            _ => (next() as i32 % (reach + 1)) as i16,
        };
        let mut run =
            || [(); NEIGHBOURS].map(|()| Pairs([(); ATOM].map(|()| [weight(), weight()])));
        [(); LINES].map(|()| Weights {
            runs: vec![run(), run()],
            singles: Vec::new(),
        })
    }

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn two_lines_are_what_the_sums_of_each_become(
            pixels in prop_oneof![0usize..21, 60usize..140],
            reach in prop_oneof![Just(128i32), Just(10922), 0i32..10922],
            (factor, bias) in (1e-9f32..0.5, -200f32..200.0),
            bounds in prop_oneof![Just((-128i8, 127i8)), any::<(i8, i8)>()],
            extremes: bool,
            seed: u32,
        ) {
            let mut next = noise(seed);
            let weights = weights(reach, &mut next);
            let filters = Filters::new(&weights).unwrap();
            let width = pixels.next_multiple_of(TILE) + PRODUCTS - TILE;
            let mut feature = || match next() {
                word if extremes => [i8::MIN, i8::MAX][word as usize % 2],
                word => word as i8,
            };
            let mut line = || -> Vec<Pairs> {
                let pairs = || Pairs([(); ATOM].map(|()| [feature(), feature()].map(i16::from)));
                std::iter::repeat_with(pairs).take(width).collect()
            };
            let places = [line(), line()];
            let addends = [(); ATOM].map(|()| next() as i32 >> (2 + next() % 20));
            let (least, most) = bounds;
            let finish = Finish { addends, steps: Steps { factor, bias }, least, most };
            let doubled = Doubled::new(&finish).unwrap();
            let lines = TwoLines {
                places: places.each_ref().map(Vec::as_slice),
                filters: &filters,
                finish: &doubled,
            };

            let sum = |line: usize, pixel: usize, c: usize| -> i32 {
                let runs = places.iter().zip(&weights[line].runs);
                let products = runs.flat_map(|(places, run)| {
                    let taps = places[pixel..].iter().zip(run);
                    taps.flat_map(|(x, w)| [0, 1].map(|k| i32::from(x.0[c][k]) * i32::from(w.0[c][k])))
                });
                products.sum()
            };
            let want = [0, 1].map(|line| -> Vec<[u8; ATOM]> {
                let sums = |pixel| std::array::from_fn(|c| sum(line, pixel, c));
                (0..pixels).map(|pixel| finish.bytes(&sums(pixel))).collect()
            });
            let mut portable = [vec![[7; ATOM]; pixels], vec![[7; ATOM]; pixels]];
            lines.bytes_portably(portable.each_mut().map(Vec::as_mut_slice));
            prop_assert_eq!(&portable, &want);
            let mut fast = [vec![[8; ATOM]; pixels], vec![[8; ATOM]; pixels]];
            lines.bytes(Vectors::detect(), fast.each_mut().map(Vec::as_mut_slice));
            prop_assert_eq!(&fast, &want);
        }
    }

    #[test]
    fn factors_beyond_16_bits_are_refused() {
        let mut weights = weights(0, &mut noise(1));
        let last = &mut weights[1].runs[1];
        for (tap, weight) in [10922, 10922, -10923].into_iter().enumerate() {
            last[tap].0[ATOM - 1][1] = weight;
        }
        assert!(Filters::new(&weights).is_some());
        weights[1].runs[1][0].0[ATOM - 1][1] += 1;
        assert_eq!(Filters::new(&weights), None);
        weights[1].runs[1][0].0[ATOM - 1][1] = i16::MIN;
        assert_eq!(Filters::new(&weights), None);
    }

    #[test]
    fn addends_whose_double_may_not_fit_are_refused() {
        let steps = Steps {
            factor: 0.25,
            bias: 0.0,
        };
        let mut addends = [0; ATOM];
        addends[3] = -(ADDEND_MAX as i32);
        let finish = Finish {
            addends,
            steps,
            least: -128,
            most: 127,
        };
        assert!(Doubled::new(&finish).is_some());
        addends[3] -= 1;
        assert!(Doubled::new(&Finish { addends, ..finish }).is_none());
    }
}
