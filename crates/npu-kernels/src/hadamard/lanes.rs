// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eight floats that stay in registers through the stages of a transform.
//!
//! Compilers make vectors of the plain arrays for AVX; for NEON they make them
//! of some and leave most of the transform to scalars (30 instructions an
//! element), so there they are named.

/// Elements of a vector.
pub(super) const LANES: usize = 8;

/// The elements of a vector in memory.
pub(super) type Vector = [f32; LANES];

#[cfg(target_arch = "aarch64")]
pub(super) use neon::Lanes;
#[cfg(not(target_arch = "aarch64"))]
pub(super) use portable::Lanes;

#[cfg(not(target_arch = "aarch64"))]
mod portable {
    use super::{LANES, Vector};

    /// As an array.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Lanes(Vector);

    impl Lanes {
        /// These elements.
        #[inline(always)]
        pub(in super::super) fn new(vector: Vector) -> Self {
            Self(vector)
        }

        /// All of them times `scale`.
        #[inline(always)]
        pub(in super::super) fn scaled(self, scale: f32) -> Vector {
            self.0.map(|x| x * scale)
        }

        /// Sums and differences, lane by lane.
        #[inline(always)]
        pub(in super::super) fn butterfly(self, other: Self) -> (Self, Self) {
            let (mut sum, mut difference) = (self, self);
            for lane in 0..LANES {
                sum.0[lane] += other.0[lane];
                difference.0[lane] -= other.0[lane];
            }
            (sum, difference)
        }

        /// The stages whose partners are 1, 2 and 4 elements apart.
        #[inline(always)]
        pub(in super::super) fn stages_within(self) -> Self {
            self.stage::<1>().stage::<2>().stage::<4>()
        }

        /// One stage: each lane and the one `APART` from it. The second of a
        /// pair is negated instead of subtracted, which is the same number, so
        /// that all lanes add.
        #[inline(always)]
        fn stage<const APART: usize>(self) -> Self {
            let v = self.0;
            let mut sums = v;
            for lane in 0..LANES {
                let signed = if lane & APART == 0 { v[lane] } else { -v[lane] };
                sums[lane] = v[lane ^ APART] + signed;
            }
            Self(sums)
        }
    }
}

#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)]
mod neon {
    use std::arch::aarch64::{
        float32x4_t, vaddq_f32, vmulq_n_f32, vreinterpretq_f32_f64, vreinterpretq_f64_f32,
        vsubq_f32, vtrn1q_f32, vtrn1q_f64, vtrn2q_f32, vtrn2q_f64,
    };

    use zerocopy::transmute;

    use super::Vector;

    /// Calls an intrinsic that takes and gives values only.
    macro_rules! neon {
        ($intrinsic:ident, $($argument:expr),*) => {
            // SAFETY: this target has NEON in its baseline, and the intrinsic
            // needs nothing else.
            unsafe { $intrinsic($($argument),*) }
        };
    }

    /// In two registers of NEON, which every aarch64 target of Rust's with
    /// floats has.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Lanes(float32x4_t, float32x4_t);

    impl Lanes {
        /// These elements.
        #[inline(always)]
        pub(in super::super) fn new(vector: Vector) -> Self {
            let [low, high]: [float32x4_t; 2] = transmute!(vector);
            Self(low, high)
        }

        /// All of them times `scale`.
        #[inline(always)]
        pub(in super::super) fn scaled(self, scale: f32) -> Vector {
            transmute!([
                neon!(vmulq_n_f32, self.0, scale),
                neon!(vmulq_n_f32, self.1, scale)
            ])
        }

        /// Sums and differences, lane by lane.
        #[inline(always)]
        pub(in super::super) fn butterfly(self, other: Self) -> (Self, Self) {
            (
                Self(
                    neon!(vaddq_f32, self.0, other.0),
                    neon!(vaddq_f32, self.1, other.1),
                ),
                Self(
                    neon!(vsubq_f32, self.0, other.0),
                    neon!(vsubq_f32, self.1, other.1),
                ),
            )
        }

        /// The stages whose partners are 1, 2 and 4 elements apart.
        #[inline(always)]
        pub(in super::super) fn stages_within(self) -> Self {
            // First partners of both halves, second ones; then back in order.
            let Self(low, high) = self;
            let (first, second) = (neon!(vtrn1q_f32, low, high), neon!(vtrn2q_f32, low, high));
            let (sum, difference) = (
                neon!(vaddq_f32, first, second),
                neon!(vsubq_f32, first, second),
            );
            let low = neon!(vtrn1q_f32, sum, difference);
            let high = neon!(vtrn2q_f32, sum, difference);
            // The same with pairs.
            let (first, second) = (pairs_first(low, high), pairs_second(low, high));
            let (sum, difference) = (
                neon!(vaddq_f32, first, second),
                neon!(vsubq_f32, first, second),
            );
            let low = pairs_first(sum, difference);
            let high = pairs_second(sum, difference);
            Self(neon!(vaddq_f32, low, high), neon!(vsubq_f32, low, high))
        }
    }

    /// The first pair of each.
    #[inline(always)]
    fn pairs_first(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        let (a, b) = (
            neon!(vreinterpretq_f64_f32, a),
            neon!(vreinterpretq_f64_f32, b),
        );
        let pairs = neon!(vtrn1q_f64, a, b);
        neon!(vreinterpretq_f32_f64, pairs)
    }

    /// The second pair of each.
    #[inline(always)]
    fn pairs_second(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        let (a, b) = (
            neon!(vreinterpretq_f64_f32, a),
            neon!(vreinterpretq_f64_f32, b),
        );
        let pairs = neon!(vtrn2q_f64, a, b);
        neon!(vreinterpretq_f32_f64, pairs)
    }
}
