// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain loops, compiled once for any host and once for the vectors that most
//! x86-64 hosts have, and what the compiler does not find by itself there.
//! (AArch64 has its vectors in every host.) Both compute the same: the
//! compiler neither reorders nor fuses operations on floats.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
pub(crate) mod x86;

/// What a loop is computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vectors {
    /// Not at all: what it stands for is computed by its definition.
    Literal,
    /// Whatever the compiler makes of it for any host.
    Plain,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::Avx2),
}

impl Vectors {
    /// The best of this host.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = x86::Avx2::detect() {
            return Self::Avx2(avx2);
        }
        Self::Plain
    }

    /// `a * b + c`, of which the product is exact, so that it does not matter
    /// whether it is rounded: in one operation where the host has it.
    #[inline(always)]
    pub(crate) fn add_product<T: Float>(self, a: T, b: T, c: T) -> T {
        if cfg!(target_arch = "aarch64") || !matches!(self, Self::Literal | Self::Plain) {
            a.fused(b, c)
        } else {
            a * b + c
        }
    }
}

/// A type of [`Vectors::add_product`].
pub(crate) trait Float:
    std::ops::Mul<Output = Self> + std::ops::Add<Output = Self> + Sized
{
    fn fused(self, b: Self, c: Self) -> Self;
}

impl Float for f32 {
    #[inline(always)]
    fn fused(self, b: Self, c: Self) -> Self {
        self.mul_add(b, c)
    }
}

impl Float for f64 {
    #[inline(always)]
    fn fused(self, b: Self, c: Self) -> Self {
        self.mul_add(b, c)
    }
}
