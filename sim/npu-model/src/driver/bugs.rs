// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bugs of the real driver that a client can run into.
//!
//! Each is noticed always, as an [`Event::KernelBug`](crate::event::Event::KernelBug) (an interrupt with a DMA
//! error has an event of its own already). What it does to a kernel happens only
//! where its switch is on, because a model that falls over is of use only to tests
//! of clients that must not.

use std::collections::BTreeSet;
use std::fmt;

/// A bug of the kernel, by what triggers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Bug {
    /// A buffer object is freed after the file that made it was closed:
    /// `rocket_gem_bo_free` then uses the freed `rocket_file_priv`. Three ways
    /// lead there: closing within [`free_delay`] of a job's end or before it,
    /// closing with an exported object whose handle is still open, and a
    /// dma-buf that outlives the file. Observed with KASAN on 7.2.
    ///
    /// Stay clear of it: munmap, GEM_CLOSE, close dma-bufs, wait, close.
    ///
    /// [`free_delay`]: super::DriverProfile::free_delay
    UseAfterClose,
    /// CREATE_BO of 2 GiB and more: the `int` that takes the result of
    /// `iommu_map_sgtable` overflows, the call fails, but the pages, which are
    /// freed, stay mapped. Later objects of the file land on that range and
    /// fail with `ENOMEM`. Observed on 7.2 with 2 GiB, above from source.
    ///
    /// Switched on, the range stays taken. (That the NPU could still reach
    /// the freed pages is not modelled: it faults.)
    HugeBo,
    /// A failed CREATE_BO leaves a handle to freed memory, in kernels without
    /// [`create_unwinds`]. Source.
    ///
    /// Switched on, the handle stays taken, and any use of it, closing the
    /// file included, brings the kernel down.
    ///
    /// [`create_unwinds`]: super::DriverProfile::create_unwinds
    DanglingHandle,
    /// `DRM_IOCTL_GET_UNIQUE` on any accel node follows a null pointer.
    /// Observed on 7.2.
    GetUnique,
    /// A count whose array would be above `INT_MAX` bytes: a warning with a
    /// stack trace from `kvmalloc`. Observed on 7.2 for `task_count`, from
    /// source for the other counts of SUBMIT.
    CountWarning,
    /// An interrupt with a DMA error bit: a warning with a stack trace each.
    /// Observed on 7.2.
    DmaWarning,
}

impl Bug {
    /// Every bug that the model can have.
    pub const ALL: [Self; 6] = [
        Self::UseAfterClose,
        Self::HugeBo,
        Self::DanglingHandle,
        Self::GetUnique,
        Self::CountWarning,
        Self::DmaWarning,
    ];

    /// Short name, as the option `bugs` takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UseAfterClose => "use-after-close",
            Self::HugeBo => "huge-bo",
            Self::DanglingHandle => "dangling-handle",
            Self::GetUnique => "get-unique",
            Self::CountWarning => "count-warning",
            Self::DmaWarning => "dma-warning",
        }
    }

    /// The bug of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bug| bug.name() == name)
    }

    /// Whether running into it brings the kernel down at once. Warnings do,
    /// as on a kernel with `panic_on_warn`: otherwise a client could not tell.
    pub(super) const fn is_fatal(self) -> bool {
        !matches!(self, Self::HugeBo)
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The bugs that take effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverBugs(BTreeSet<Bug>);

impl DriverBugs {
    /// None: running into one is an event and nothing else.
    pub const NONE: Self = Self(BTreeSet::new());

    /// The set of all bugs.
    #[must_use]
    pub fn all() -> Self {
        Bug::ALL.into_iter().collect()
    }

    /// Whether this one takes effect.
    #[must_use]
    pub fn contains(&self, bug: Bug) -> bool {
        self.0.contains(&bug)
    }
}

impl FromIterator<Bug> for DriverBugs {
    fn from_iter<T: IntoIterator<Item = Bug>>(bugs: T) -> Self {
        Self(bugs.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_bugs() {
        for bug in Bug::ALL {
            assert_eq!(Bug::by_name(bug.name()), Some(bug));
            assert!(DriverBugs::all().contains(bug));
            assert!(!DriverBugs::NONE.contains(bug));
        }
    }
}
