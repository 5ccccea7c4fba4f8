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

    /// Whether the host multiplies and adds in one operation. Products are exact
    /// here, so that both ways give the same bits.
    #[inline(always)]
    pub(crate) fn fuses(self) -> bool {
        cfg!(target_arch = "aarch64") || !matches!(self, Self::Literal | Self::Plain)
    }
}
