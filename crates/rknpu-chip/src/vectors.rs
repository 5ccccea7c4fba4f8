// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which vectors of the host a computation may use.
//!
//! [`Avx2`] and [`F16c`] are proofs: nobody but their `detect` makes one, so
//! that a function that is given one may use what it stands for.

#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected;

/// The host has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
    }
}

/// The host has AVX and F16C.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct F16c(());

#[cfg(target_arch = "x86_64")]
impl F16c {
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx") && is_x86_feature_detected!("f16c")).then_some(Self(()))
    }
}

/// What a product is computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vectors {
    /// None at all: pair by pair, by the definition.
    Literal,
    /// Whatever the compiler makes of plain loops.
    // Every AArch64 has NEON: there it is the reference of tests only.
    #[cfg_attr(target_arch = "aarch64", allow(dead_code))]
    Portable,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// NEON, which every AArch64 has.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Vectors {
    /// The best of this host.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = Avx2::detect() {
            return Self::Avx2(avx2);
        }
        #[cfg(target_arch = "aarch64")]
        {
            Self::Neon
        }
        #[cfg(not(target_arch = "aarch64"))]
        Self::Portable
    }
}
