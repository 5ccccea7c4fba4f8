// SPDX-License-Identifier: MIT OR Apache-2.0
//! int8 results of many integers: the output converter in float64.
//! [`OutCvt::byte`] defines them.

use super::out_cvt::OutCvt;
use crate::mac_array::Ties;
use crate::vectors::{self, Loop, Vectors};

/// Widest shift that leaves room for the fraction in float64.
const EXACT_SHIFT: u32 = 62;

/// A converter to int8, ready for many values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requant {
    cvt: OutCvt,
    vectors: Vectors,
    /// `None` where float64 is not exact.
    double: Option<Double>,
}

/// `(x + before) * factor`, rounded, and `after` added.
#[derive(Clone, Copy, Debug)]
struct Double {
    before: f64,
    factor: f64,
    after: f64,
}

impl Requant {
    /// A converter whose type in memory is int8.
    pub(crate) fn new(cvt: &OutCvt, vectors: Vectors) -> Self {
        let exact = !cvt.floor && cvt.shift <= EXACT_SHIFT && cvt.ties == Ties::Even;
        let double = (exact && vectors != Vectors::Literal).then(|| Double::new(cvt));
        Self {
            cvt: *cvt,
            vectors,
            double,
        }
    }

    /// Makes `out` the bytes of `values`, of equal number.
    pub(crate) fn bytes(&self, values: &[i32], out: &mut [u8]) {
        match self.double {
            Some(double) => vectors::run(
                self.vectors,
                Bytes {
                    double,
                    values,
                    out,
                },
            ),
            None => {
                for (byte, &x) in out.iter_mut().zip(values) {
                    *byte = self.cvt.byte(x);
                }
            }
        }
    }
}

impl Double {
    fn new(cvt: &OutCvt) -> Self {
        let offset = f64::from(cvt.offset);
        let (before, after) = if cvt.add_first {
            (offset, 0.0)
        } else {
            (0.0, offset)
        };
        Self {
            before,
            factor: f64::from(cvt.scale) * (-f64::from(cvt.shift)).exp2(),
            after,
        }
    }

    /// Product and offset stay below 2^49, and halving them SHIFT times only
    /// changes the exponent. Adding 1.5 * 2^52 then rounds to an integer, ties
    /// to even, and leaves it in the low bits.
    #[inline(always)]
    fn byte(&self, x: i32) -> u8 {
        const ROUND: f64 = 6_755_399_441_055_744.0;
        let scaled = (f64::from(x) + self.before) * self.factor;
        let value = (scaled + ROUND) - ROUND + self.after;
        let value = if value < -128.0 { -128.0 } else { value };
        let value = if value > 127.0 { 127.0 } else { value };
        (value + ROUND).to_bits() as u8
    }
}

/// int8 of many values.
struct Bytes<'a> {
    double: Double,
    values: &'a [i32],
    out: &'a mut [u8],
}

impl Loop for Bytes<'_> {
    #[inline(always)]
    fn run(self, _: Vectors) {
        for (byte, &x) in self.out.iter_mut().zip(self.values) {
            *byte = self.double.byte(x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::out_cvt::tests::cvt;
    use super::*;
    use crate::precision::Precision;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(test_support::cases(512))]

        #[test]
        fn all_ways_make_the_bytes_of_the_definition(
            values in prop::collection::vec(
                prop_oneof![
                    any::<i32>(),
                    -70_000i32..70_000,
                    -600i32..600,
                    // Near ties of large scales.
                    (any::<i16>(), 0u32..16, -2i32..3)
                        .prop_map(|(x, by, near)| (i32::from(x) << by).saturating_add(near)),
                    Just(i32::MIN),
                    Just(i32::MAX),
                ],
                1..200,
            ),
            offset in prop_oneof![any::<i32>(), -600i32..600, -600_000i32..600_000],
            scale in prop_oneof![
                -0x8000i32..0x10000,
                (0u32..16).prop_map(|by| 1 << by),
                Just(0),
                Just(0x8000),
            ],
            shift in 0u32..66,
            ties in prop::sample::select(vec![Ties::Even, Ties::Up, Ties::Away]),
            add_first: bool,
            floor: bool,
        ) {
            let int8 = cvt(Precision::Int8);
            let cvt = OutCvt { offset, scale, shift, ties, add_first, floor, ..int8 };
            let want: Vec<u8> = values.iter().map(|&x| cvt.byte(x)).collect();
            for vectors in [Vectors::detect(), Vectors::Plain, Vectors::Literal] {
                let mut got = vec![0; values.len()];
                Requant::new(&cvt, vectors).bytes(&values, &mut got);
                prop_assert_eq!(&got, &want, "{:?}", vectors);
            }
        }
    }
}
