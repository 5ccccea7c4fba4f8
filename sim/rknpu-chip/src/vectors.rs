// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vectors of the host. Loops are compiled once for any host and once for the
//! vectors of most x86-64 hosts; `x86` has what the compiler does not find
//! there. (AArch64 has its vectors in every host.) Both give the same results:
//! the compiler neither reorders nor fuses operations on floats.

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

/// The vectors that a loop uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vectors {
    /// Those that the compiler uses for any host.
    Plain,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::Avx2),
}

impl Vectors {
    /// The best vectors of this host.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = x86::Avx2::detect() {
            return Self::Avx2(avx2);
        }
        Self::Plain
    }

    /// Whether the host multiplies and adds in one operation. Products are exact
    /// here, so both ways give the same bits.
    #[inline(always)]
    pub(crate) fn fuses(self) -> bool {
        cfg!(target_arch = "aarch64") || self != Self::Plain
    }
}

/// A loop to run. `run` should be `#[inline(always)]`, so that it is compiled
/// for the vectors of its caller.
pub(crate) trait Loop {
    fn run(self, vectors: Vectors);
}

/// Runs `work` with these vectors.
pub(crate) fn run(vectors: Vectors, work: impl Loop) {
    match vectors {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Avx2` exists only on hosts with these features.
        Vectors::Avx2(host) => unsafe { run_avx2(host, work) },
        Vectors::Plain => work.run(vectors),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2(host: x86::Avx2, work: impl Loop) {
    work.run(Vectors::Avx2(host));
}
