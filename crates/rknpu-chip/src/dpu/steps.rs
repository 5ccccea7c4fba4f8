// SPDX-License-Identifier: MIT OR Apache-2.0
//! int8 results in float32, proven for a converter before it is used.
//!
//! What [`OutCvt::byte`] makes of integers is a staircase: with a positive
//! scale it never goes down, and it has 255 steps at most. A fused product and
//! sum in float32, rounded to an integer, never goes down either. Two such
//! functions that agree on both sides of each step, and at both ends, agree
//! everywhere. So a factor and a bias are tried at the steps, a few
//! neighbours of them where they fail, and what passes needs no look at any
//! value that is converted.

use super::super::loops::{self, Loop};
use super::super::precision::ATOM;
use super::out_cvt::OutCvt;

/// Widest shift whose factor is exact in float64.
const EXACT_SHIFT: u32 = 62;
/// Largest factor: the scaled value of any i32 and the largest bias together
/// are an i32.
const FACTOR_MAX: f64 = 0.5;
/// Largest offset of the result.
const OFFSET_MAX: f64 = 65536.0;
/// Integers around where a step is expected that are looked at: from the
/// first of them on, and to the last.
const AROUND: std::ops::RangeInclusive<i32> = -2..=1;
/// Changes of the bias that are tried, in units of 2^-20.
const NUDGES: [i32; 11] = [0, 1, -1, 2, -2, 4, -4, 8, -8, 16, -16];
/// Changes of the factor that are tried, in its last place.
const LAST_PLACES: [i32; 3] = [0, 1, -1];
/// Steps that are compared before looking whether all agree.
const COMPARED: usize = 64;

/// A converter to int8 as `round(x * factor + bias)`, halves to even.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Steps {
    pub(crate) factor: f32,
    pub(crate) bias: f32,
}

/// What becomes of the sums of an atom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Finish {
    /// Added to the sum of each channel, which never overflows.
    pub(crate) addends: [i32; ATOM],
    pub(crate) steps: Steps,
    /// What bytes are raised to, and then lowered to.
    pub(crate) least: i8,
    pub(crate) most: i8,
}

impl Finish {
    /// The bytes of an atom.
    pub(crate) fn bytes(&self, sums: &[i32; ATOM]) -> [u8; ATOM] {
        std::array::from_fn(|c| {
            let byte = self.steps.byte(sums[c] + self.addends[c]);
            byte.max(self.least).min(self.most) as u8
        })
    }
}

/// An integer, and the byte that the definition makes of it.
#[derive(Clone, Copy)]
struct Edge {
    x: i32,
    byte: i8,
}

impl Steps {
    /// What does the same as `cvt`, whose type in memory is int8, if any such
    /// is found.
    pub(crate) fn new(cvt: &OutCvt) -> Option<Self> {
        if cvt.scale <= 0 || cvt.shift > EXACT_SHIFT {
            return None;
        }
        let factor = f64::from(cvt.scale) * (-f64::from(cvt.shift)).exp2();
        let mut offset = f64::from(cvt.offset);
        if cvt.add_first {
            offset *= factor;
        }
        if factor > FACTOR_MAX || offset.abs() > OFFSET_MAX {
            return None;
        }
        let edges = edges(cvt, factor, offset)?;
        let unit = (-20f64).exp2();
        let factors = LAST_PLACES.map(|by| {
            let bits = (factor as f32).to_bits();
            f32::from_bits(bits.saturating_add_signed(by))
        });
        let candidates = NUDGES.into_iter().flat_map(|nudge| {
            let bias = (offset + f64::from(nudge) * unit) as f32;
            factors.map(|factor| Self { factor, bias })
        });
        candidates.into_iter().find(|steps| steps.pass(&edges))
    }

    /// The byte of an integer.
    #[inline(always)]
    pub(crate) fn byte(self, x: i32) -> i8 {
        let scaled = (x as f32).mul_add(self.factor, self.bias);
        (scaled.round_ties_even() as i32).clamp(i8::MIN.into(), i8::MAX.into()) as i8
    }

    fn pass(self, edges: &[Edge]) -> bool {
        let mut pass = true;
        loops::run(Pass {
            steps: self,
            edges,
            pass: &mut pass,
        });
        pass
    }
}

/// The integers around each step; `None` where one is not where it is looked
/// for.
fn edges(cvt: &OutCvt, factor: f64, offset: f64) -> Option<Vec<Edge>> {
    let edge = |x: i32| Edge {
        x,
        byte: cvt.byte(x) as i8,
    };
    let mut edges = vec![edge(i32::MIN), edge(i32::MAX)];
    for byte in i8::MIN + 1..=i8::MAX {
        // The cast stops at both ends.
        let expected = ((f64::from(byte) - 0.5 - offset) / factor).ceil() as i32;
        let around = AROUND.map(|by| edge(expected.saturating_add(by)));
        let start = edges.len();
        edges.extend(around);
        let (below, above) = (edges[start], edges[edges.len() - 1]);
        let starts_below = below.byte < byte || below.x == i32::MIN;
        let ends_above = above.byte >= byte || above.x == i32::MAX;
        if !(starts_below && ends_above) {
            return None;
        }
    }
    Some(edges)
}

struct Pass<'a> {
    steps: Steps,
    edges: &'a [Edge],
    pass: &'a mut bool,
}

impl Loop for Pass<'_> {
    #[inline(always)]
    fn run(self) {
        *self.pass = self.edges.chunks(COMPARED).all(|edges| {
            let wrong = |edge: &Edge| u32::from(self.steps.byte(edge.x) != edge.byte);
            edges.iter().map(wrong).sum::<u32>() == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::mac_array::Ties;
    use super::super::out_cvt::tests::cvt;
    use super::*;
    use crate::precision::Precision;
    use proptest::prelude::*;

    fn random_cvt() -> impl Strategy<Value = OutCvt> {
        (
            prop_oneof![-600i32..600, any::<i32>(), -60_000i32..60_000],
            prop_oneof![
                1i32..0x8000,
                (0u32..16).prop_map(|by| 1 << by),
                Just(0),
                Just(-5)
            ],
            0u32..40,
            prop::sample::select(vec![Ties::Even, Ties::Up, Ties::Away]),
            any::<bool>(),
        )
            .prop_map(|(offset, scale, shift, ties, add_first)| OutCvt {
                offset,
                scale,
                shift,
                ties,
                add_first,
                ..cvt(Precision::Int8)
            })
    }

    proptest! {
        #![proptest_config(test_support::cases(512))]

        #[test]
        fn what_passes_at_the_steps_passes_everywhere(
            cvt in random_cvt(),
            values in prop::collection::vec(
                prop_oneof![any::<i32>(), -200_000i32..200_000, -900i32..900],
                200,
            ),
        ) {
            if let Some(steps) = Steps::new(&cvt) {
                for x in values.into_iter().chain([i32::MIN, i32::MAX]) {
                    prop_assert_eq!(steps.byte(x), cvt.byte(x) as i8, "{}", x);
                }
            }
        }
    }

    /// Scales as programs have them, whose results are those of a kernel of
    /// 3x3 taps.
    #[test]
    fn most_converters_have_steps() {
        let converters: Vec<OutCvt> = (0..500)
            .map(|index| OutCvt {
                offset: index % 200 - 100,
                scale: 0x4000 + index * 31,
                shift: 21 + index as u32 % 4,
                ..cvt(Precision::Int8)
            })
            .collect();
        let found = converters.iter().filter_map(Steps::new).count();
        assert!(found > 450, "{found} of 500");
    }
}
