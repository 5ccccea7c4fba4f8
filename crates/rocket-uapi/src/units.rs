// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types for lengths and deadlines, so that they cannot be confused, and handles.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

pub use drm::buffer::Handle;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use thiserror::Error;

/// Page size, bytes: the lengths of BOs are rounded up to it. The RK3588's distributions use pages of
/// 4 KiB. arm64 kernels can also have pages of 16 or 64 KiB, which round a BO up further; this crate
/// does not access those bytes.
pub const PAGE_BYTES: usize = 4096;

/// The error with this number; `None` if Linux has no such error.
#[must_use]
pub fn errno(number: i32) -> Option<Errno> {
    /// MAX_ERRNO (Linux, include/linux/err.h).
    const LAST: i32 = 4095;
    let valid = (1..=LAST).contains(&number);
    valid.then(|| Errno::from_raw_os_error(number))
}

/// The error of a negative status; EPROTO if Linux has no such error.
#[must_use]
pub fn errno_of(status: i32) -> Errno {
    errno(status.saturating_neg()).unwrap_or(Errno::PROTO)
}

/// A length that no BO can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LengthError {
    /// 0 bytes.
    #[error("a buffer object of 0 bytes; it needs at least 1")]
    Zero,
    /// 2 GiB or more.
    #[error(
        "a buffer object of {bytes} bytes; it must be smaller than 2 GiB: a larger one breaks the \
         driver for this file; use several"
    )]
    TooLong {
        /// The requested length.
        bytes: usize,
    },
}

/// The handle with this number; `None` for 0, which is never one (Linux `drm_gem.c`).
#[must_use]
pub fn handle(number: u32) -> Option<Handle> {
    NonZeroU32::new(number).map(Handle::from)
}

/// The length of a BO in bytes: at least 1, below 2 GiB.
///
/// The limit avoids a kernel bug. At 2 GiB an `int` overflows in `rocket_gem.c`. CREATE_BO
/// then fails with ENOMEM, and so does every later one of that file (observed on Linux
/// 7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteLen(u32);

impl ByteLen {
    /// Largest length: 2 GiB minus a page.
    pub const MAX: Self = Self((1 << 31) - PAGE_BYTES as u32);

    /// The length of `bytes` bytes.
    ///
    /// # Errors
    /// When `bytes` is 0 or more than [`ByteLen::MAX`].
    pub fn new(bytes: usize) -> Result<Self, LengthError> {
        match u32::try_from(bytes) {
            Ok(0) => Err(LengthError::Zero),
            Ok(len) if len <= Self::MAX.0 => Ok(Self(len)),
            _ => Err(LengthError::TooLong { bytes }),
        }
    }

    /// The length in bytes.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }

    /// The length rounded up to whole pages, as the kernel maps it.
    #[must_use]
    pub const fn page_rounded(self) -> Self {
        Self(self.0.next_multiple_of(PAGE_BYTES as u32))
    }
}

impl fmt::Display for ByteLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

/// The time at which a wait ends, in nanoseconds of CLOCK_MONOTONIC.
///
/// PREP_BO takes an absolute time. A relative time would be in the distant past, and the
/// wait would return at once. So programs use [`Deadline::after`], not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(i64);

impl Deadline {
    /// In the past: return without waiting.
    pub const NOW: Self = Self(0);
    /// Wait as long as it takes.
    pub const FOREVER: Self = Self(i64::MAX);

    /// `duration` from now; [`Deadline::FOREVER`] if that exceeds the clock's range.
    #[must_use]
    pub fn after(duration: Duration) -> Self {
        let nanoseconds = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        Self(monotonic_ns().saturating_add(nanoseconds))
    }

    /// The deadline at an absolute time from an ioctl, in nanoseconds. For drivers.
    #[must_use]
    pub const fn from_nanos(nanoseconds: i64) -> Self {
        Self(nanoseconds)
    }

    /// The absolute time for the kernel, in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Time until the deadline; zero if it has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        let left = self.0.saturating_sub(monotonic_ns());
        u64::try_from(left).map_or(Duration::ZERO, Duration::from_nanos)
    }

    /// Whether the deadline has passed.
    #[must_use]
    pub fn has_passed(self) -> bool {
        self.0 <= monotonic_ns()
    }
}

/// The current CLOCK_MONOTONIC time, in nanoseconds.
#[must_use]
pub fn monotonic_ns() -> i64 {
    const SECOND: i64 = 1_000_000_000;
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec
        .saturating_mul(SECOND)
        .saturating_add(now.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_end_below_two_gib() {
        assert_eq!(ByteLen::new(0), Err(LengthError::Zero));
        assert_eq!(ByteLen::new(1).unwrap().page_rounded().get(), PAGE_BYTES);
        assert_eq!(
            ByteLen::new(ByteLen::MAX.get()).unwrap().page_rounded(),
            ByteLen::MAX
        );
        for bytes in [ByteLen::MAX.get() + 1, 1 << 31, usize::MAX] {
            assert_eq!(ByteLen::new(bytes), Err(LengthError::TooLong { bytes }));
        }
    }

    #[test]
    fn deadlines_are_absolute() {
        assert!(Deadline::NOW.has_passed());
        assert!(!Deadline::FOREVER.has_passed());
        assert_eq!(Deadline::after(Duration::MAX), Deadline::FOREVER);
        let hour = Deadline::after(Duration::from_secs(3600));
        assert!(hour.remaining() > Duration::from_secs(3000));
        assert!(hour.remaining() <= Duration::from_secs(3600));
    }
}
