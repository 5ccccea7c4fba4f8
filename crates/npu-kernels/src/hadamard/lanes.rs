// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eight floats that stay in registers during the stages of a transform.
//!
//! For AVX, compilers vectorise plain arrays. For NEON they leave most of the transform to scalar
//! code (30 instructions per element), so NEON uses intrinsics.

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

    /// A vector as an array of floats.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Lanes(Vector);

    impl Lanes {
        /// Loads a vector.
        #[inline(always)]
        pub(in super::super) fn new(vector: Vector) -> Self {
            Self(vector)
        }

        /// All elements times `scale`.
        #[inline(always)]
        pub(in super::super) fn scaled(self, scale: f32) -> Vector {
            self.0.map(|x| x * scale)
        }

        /// Sums and differences of the lanes.
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

        /// One stage: each lane with the one `APART` from it. The second of a pair is negated
        /// instead of subtracted, which gives the same number, so that all lanes add.
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
    use std::arch::aarch64::{self, float32x4_t, float64x2_t};

    use zerocopy::transmute;

    use super::Vector;

    const _: () = assert!(cfg!(target_feature = "neon"));

    /// Declares safe functions for intrinsics on values. Only their own arguments get into the
    /// `unsafe`.
    macro_rules! neon {
        ($($intrinsic:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {$(
            #[inline(always)]
            fn $intrinsic($($argument: $kind),*) -> $result {
                // SAFETY: this target has NEON in its baseline, as is asserted
                // above, and the intrinsic, which has no pointer among its
                // arguments, needs nothing else.
                unsafe { aarch64::$intrinsic($($argument),*) }
            }
        )*};
    }

    neon! {
        vaddq_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
        vsubq_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
        vmulq_n_f32(a: float32x4_t, b: f32) -> float32x4_t;
        vtrn1q_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
        vtrn2q_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
        vtrn1q_f64(a: float64x2_t, b: float64x2_t) -> float64x2_t;
        vtrn2q_f64(a: float64x2_t, b: float64x2_t) -> float64x2_t;
        vreinterpretq_f64_f32(a: float32x4_t) -> float64x2_t;
        vreinterpretq_f32_f64(a: float64x2_t) -> float32x4_t;
    }

    /// A vector in two NEON registers. All of Rust's aarch64 targets with floats have NEON.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Lanes(float32x4_t, float32x4_t);

    impl Lanes {
        /// Loads a vector.
        #[inline(always)]
        pub(in super::super) fn new(vector: Vector) -> Self {
            let [low, high]: [float32x4_t; 2] = transmute!(vector);
            Self(low, high)
        }

        /// All elements times `scale`.
        #[inline(always)]
        pub(in super::super) fn scaled(self, scale: f32) -> Vector {
            transmute!([vmulq_n_f32(self.0, scale), vmulq_n_f32(self.1, scale)])
        }

        /// Sums and differences of the lanes.
        #[inline(always)]
        pub(in super::super) fn butterfly(self, other: Self) -> (Self, Self) {
            (
                Self(vaddq_f32(self.0, other.0), vaddq_f32(self.1, other.1)),
                Self(vsubq_f32(self.0, other.0), vsubq_f32(self.1, other.1)),
            )
        }

        /// The stages whose partners are 1, 2 and 4 elements apart.
        #[inline(always)]
        pub(in super::super) fn stages_within(self) -> Self {
            // First partners of both halves, then second ones; afterwards back in order.
            let Self(low, high) = self;
            let (first, second) = (vtrn1q_f32(low, high), vtrn2q_f32(low, high));
            let (sum, difference) = (vaddq_f32(first, second), vsubq_f32(first, second));
            let low = vtrn1q_f32(sum, difference);
            let high = vtrn2q_f32(sum, difference);
            // As above with pairs.
            let (first, second) = (pairs_first(low, high), pairs_second(low, high));
            let (sum, difference) = (vaddq_f32(first, second), vsubq_f32(first, second));
            let low = pairs_first(sum, difference);
            let high = pairs_second(sum, difference);
            Self(vaddq_f32(low, high), vsubq_f32(low, high))
        }
    }

    /// The first pair of each vector.
    #[inline(always)]
    fn pairs_first(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        let (a, b) = (vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b));
        let pairs = vtrn1q_f64(a, b);
        vreinterpretq_f32_f64(pairs)
    }

    /// The second pair of each vector.
    #[inline(always)]
    fn pairs_second(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        let (a, b) = (vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b));
        let pairs = vtrn2q_f64(a, b);
        vreinterpretq_f32_f64(pairs)
    }
}
