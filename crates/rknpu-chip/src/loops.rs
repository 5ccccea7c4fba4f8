// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain loops, compiled once for any host and once for the vectors that most
//! hosts have. Both compute the same: the compiler neither reorders nor fuses
//! operations on floats.

/// A loop to run. `run` should be `#[inline(always)]`, so that it is compiled
/// for the vectors of where it is called.
pub(crate) trait Loop {
    fn run(self);
}

/// Runs `work` with the best vectors of this host.
pub(crate) fn run(work: impl Loop) {
    #[cfg(target_arch = "x86_64")]
    if let Some(host) = super::vectors::Avx2::detect() {
        x86::run(host, work);
        return;
    }
    work.run();
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use super::super::vectors::Avx2;
    use super::Loop;

    pub(super) fn run(_: Avx2, work: impl Loop) {
        // SAFETY: an `Avx2` is made only where the host has AVX2 and FMA.
        unsafe { run_fma(work) }
    }

    #[target_feature(enable = "avx2,fma")]
    fn run_fma(work: impl Loop) {
        work.run();
    }
}
