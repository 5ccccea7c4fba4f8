// SPDX-License-Identifier: MIT OR Apache-2.0
//! Differences between kernels, as plain data.
//!
//! The uAPI is the same from Linux 6.18 on: four ioctls, driver version 0.0.0.
//! Versions are known to differ in how CREATE_BO and SUBMIT fail. The machine's IOMMU
//! and CONFIG_HZ differ independently of the version.

use std::time::Duration;

use rocket_uapi::{Deadline, Iova, KernelVersion};

/// The IOMMU of the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iommu {
    /// `rk_iommu` of the RK3588: 32-bit addresses.
    Rockchip,
    /// An Arm SMMUv3, like that of QEMU's `virt` machine: 48-bit addresses. Its
    /// observations hold for both, except those with more than 4 GiB of buffer
    /// objects in one file.
    SmmuV3,
}

impl Iommu {
    /// Bytes of an address space (`geometry.aperture_end` + 1).
    pub(crate) const fn aperture(self) -> u64 {
        match self {
            Self::Rockchip => Iova::END,
            Self::SmmuV3 => 1 << 48,
        }
    }
}

/// The properties of one kernel in which kernels can differ.
///
/// [`Self::ALL`] has mainline kernels as released, on an RK3588. They differ in
/// [`Self::create_unwinds`] and [`Self::submit_unwinds`]. The other fields are equal:
/// observed on 7.2.12, and unchanged in the sources of 6.18 to 7.3.4.
///
/// ```
/// use npu_model::driver::{DriverProfile, Iommu};
///
/// let qemu = DriverProfile {
///     iommu: Iommu::SmmuV3,
///     ..DriverProfile::LINUX_7_2
/// };
/// assert_eq!(DriverProfile::by_name("linux-7.2"), Some(DriverProfile::LINUX_7_2));
/// # let _ = qemu;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverProfile {
    /// Name, for [`DriverProfile::by_name`].
    pub name: &'static str,
    /// The IOMMU, which sets the size of a file's address space. Observed with
    /// both.
    pub iommu: Iommu,
    /// Time limit of a job, all its tasks together, in modelled device time. Linux:
    /// `JOB_TIMEOUT_MS`, 500; observed. All kernels have the same, so the option `driver` of
    /// `options.rs` keeps the limit that the option `job-limit` set.
    pub job_limit: Duration,
    /// Length of a jiffy, to which PREP_BO's deadlines are rounded up: 4 ms at
    /// CONFIG_HZ=250, arm64's default. Observed at 1000 (+20 ms became 20.7 ms);
    /// rounding from source (`drm_timeout_abs_to_jiffies`). The kernel counts from
    /// its last tick. If that came late, as in a virtual machine, the wait ends
    /// that much too early.
    pub tick: Duration,
    /// Idle time after which a core may lose its registers. Linux: 50 ms;
    /// observed (active at 30 ms, suspended at 90 ms).
    pub autosuspend: Duration,
    /// How long an exiting process waits for its queue to be handed over
    /// before the rest is dropped. Linux: `MAX_WAIT_SCHED_ENTITY_Q_EMPTY`,
    /// 1 s; source, and observed within it.
    pub exit_wait: Duration,
    /// How long after a job's end the scheduler may still hold its buffer
    /// objects. Observed: 10 of 300 files closed at once were too early, none
    /// of 300 closed 20 ms later.
    pub free_delay: Duration,
    /// Whether CREATE_BO makes the handle last and checks that it got an address.
    /// Before that fix ("accel/rocket: fix UAF via dangling GEM handle in
    /// create_bo", mainline in May 2026, hence 7.1; in 6.18.y since June 2026) a
    /// failed CREATE_BO leaves a handle to freed memory. Source.
    pub create_unwinds: bool,
    /// Whether SUBMIT takes a job's address space before it can fail, and forgets a task
    /// array that it has freed. Before 7.2 a job with an unknown handle, or a task
    /// without words, dereferences NULL in the kernel. Source; observed on 7.3.4 with
    /// those two lines as in the first version (tests/hw/kernels).
    pub submit_unwinds: bool,
}

/// Prefix of the names of mainline kernels.
const NAME_PREFIX: &str = "linux-";

/// A mainline kernel of that name, as released, with all known fixes.
const fn mainline(name: &'static str) -> DriverProfile {
    DriverProfile {
        name,
        iommu: Iommu::Rockchip,
        job_limit: Duration::from_millis(500),
        tick: Duration::from_millis(4),
        autosuspend: Duration::from_millis(50),
        exit_wait: Duration::from_secs(1),
        free_delay: Duration::from_millis(20),
        create_unwinds: true,
        submit_unwinds: true,
    }
}

impl DriverProfile {
    /// Linux 6.18, the first with the driver, as released.
    pub const LINUX_6_18: Self = Self::first_version("linux-6.18");
    /// Linux 7.2. What this crate calls "observed" was observed on it.
    pub const LINUX_7_2: Self = mainline("linux-7.2");

    /// All profiles, oldest first. CREATE_BO was fixed in 7.1, SUBMIT in 7.2. 7.3 has
    /// the code of 7.2 in all places that were compared (7.3.4).
    pub const ALL: [Self; 6] = [
        Self::LINUX_6_18,
        Self::first_version("linux-6.19"),
        Self::first_version("linux-7.0"),
        Self {
            submit_unwinds: false,
            ..mainline("linux-7.1")
        },
        Self::LINUX_7_2,
        mainline("linux-7.3"),
    ];

    /// A kernel with the driver's first version.
    const fn first_version(name: &'static str) -> Self {
        Self {
            create_unwinds: false,
            submit_unwinds: false,
            ..mainline(name)
        }
    }

    /// The profile of that name: `linux-7.2`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name == name)
    }

    /// The profile for a release string such as `7.3.4-arm64`: the newest profile
    /// that is not newer, else the oldest.
    #[must_use]
    pub fn of_release(release: &str) -> Self {
        let release = KernelVersion::parse(release);
        let version = |profile: &Self| {
            let name = profile.name.strip_prefix(NAME_PREFIX);
            name.and_then(KernelVersion::parse)
        };
        let known = Self::ALL.into_iter().rev();
        let mut not_newer = known.filter(|profile| version(profile) <= release);
        not_newer.next().unwrap_or(Self::LINUX_6_18)
    }

    /// The real end of a wait that should end `left` after `now`: the next whole
    /// number of ticks that is greater than `left`.
    pub(crate) fn end_of_wait(&self, now: i64, left: Duration) -> Deadline {
        let tick = self.tick.as_nanos().max(1);
        let whole = (left.as_nanos() / tick + 1).saturating_mul(tick);
        let end = i64::try_from(whole).ok().and_then(|ns| now.checked_add(ns));
        end.map_or(Deadline::FOREVER, Deadline::from_nanos)
    }
}

impl Default for DriverProfile {
    /// The kernel that was observed.
    fn default() -> Self {
        Self::LINUX_7_2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_find_their_profiles() {
        for profile in DriverProfile::ALL {
            assert_eq!(DriverProfile::by_name(profile.name), Some(profile));
        }
        assert_eq!(DriverProfile::by_name("linux-5.10"), None);
    }

    #[test]
    fn releases_have_the_profile_of_their_version() {
        for (release, name) in [
            ("6.18.3", "linux-6.18"),
            ("7.2.12-arm64", "linux-7.2"),
            ("7.3.4-rocketvm", "linux-7.3"),
            ("99.0", "linux-7.3"),
            ("6.1.75-rknpu", "linux-6.18"),
            ("6.9", "linux-6.18"),
            ("", "linux-6.18"),
        ] {
            assert_eq!(DriverProfile::of_release(release).name, name, "{release}");
        }
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        /// A wait never ends early, and at most a tick late.
        #[test]
        fn deadlines_are_rounded_up(now in 0i64..1 << 60, left in 0u64..1 << 60, tick in 1u64..1 << 30) {
            let profile = DriverProfile {
                tick: Duration::from_nanos(tick),
                ..DriverProfile::default()
            };
            let end = profile.end_of_wait(now, Duration::from_nanos(left)).as_nanos();
            let late = end - now - left as i64;
            prop_assert!(0 < late && late as u64 <= tick, "{}", late);
        }
    }

    #[test]
    fn far_deadlines_are_none() {
        let profile = DriverProfile::default();
        let left = Duration::from_nanos(i64::MAX.unsigned_abs());
        assert_eq!(profile.end_of_wait(1, left), Deadline::FOREVER);
    }
}
