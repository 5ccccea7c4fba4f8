// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefetches cache lines before they are read.
//!
//! Processors prefetch consecutive addresses themselves. In a tile only a few lines are
//! consecutive; the next ones are in another page.

use crate::LINE_BYTES;

/// Prefetches the whole lines of `bytes` into the first-level cache, if the target has an
/// instruction for it. Only a hint: results do not depend on it.
#[inline(always)]
pub(crate) fn prefetch(bytes: &[u8]) {
    for line in bytes.as_chunks::<LINE_BYTES>().0 {
        prefetch_line(line);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unsafe_code)]
#[inline(always)]
fn prefetch_line(line: &[u8; LINE_BYTES]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: SSE is in the baseline of this target. The instruction changes
    // no memory and no register, and faults on no address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[allow(unsafe_code)]
#[inline(always)]
fn prefetch_line(line: &[u8; LINE_BYTES]) {
    // SAFETY: the instruction changes no memory and no register, and faults on
    // no address.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{line}]",
            line = in(reg) line.as_ptr(),
            options(nomem, nostack, preserves_flags)
        );
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[inline(always)]
fn prefetch_line(_: &[u8; LINE_BYTES]) {}
