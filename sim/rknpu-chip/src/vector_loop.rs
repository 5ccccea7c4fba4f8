// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loops that are compiled for any host and for the vectors of this one.

use super::vectors::Vectors;
#[cfg(target_arch = "x86_64")]
use super::vectors::x86::Avx2;

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
        _ => work.run(Vectors::Plain),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2(host: Avx2, work: impl Loop) {
    work.run(Vectors::Avx2(host));
}
