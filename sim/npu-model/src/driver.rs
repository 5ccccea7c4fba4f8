// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel driver in software, from the ioctls of `/dev/accel/accel0` to the
//! register windows of the cores.
//!
//! It behaves like the `rocket` driver of Linux 7.2, which was run unmodified in
//! QEMU on a modelled NPU and observed call by call. Items that were only read
//! in the source say so. `docs/driver.md` has the list.
//!
//! | folder | file | what it is in the kernel |
//! |---|---|---|
//! | `base` | `memory`, `cache` | pages; the CPU's caches |
//! | | `profile`, `bugs` | differences between kernels; bugs |
//! | `objects` | `gem` | buffer objects, handles, reservations |
//! | | `iova`, `iommu` | drm_mm, the IOMMU domain |
//! | | `mapping`, `fence`, `resv` | mappings in this process; dma_fence, dma_resv |
//! | | `life`, `health` | what ends with a file; whether the kernel is down |
//! | `jobs` | `job`, `sched`, `orphans` | SUBMIT, the DRM scheduler |
//! | | `run`, `hardware` | a job on its core; the register accesses of one task |
//! | `files` | `device`, `drm_file`, `release` | the state that files share; an open file and its end |
//! | | `drm_file_mmap`, `client_map` | mappings of other processes |
//! | | `shared_file`, `dma_buf`, `sync_file`, `sw_sync` | PRIME; files other than the device node |
//! | `entry` | `model`, `ioctl`, `file_operations` | the device, drm_ioctl and the handlers, system calls |
//!
//! The interface is raw: [`DrmFile::ioctl`] takes bytes and returns an errno, so
//! it serves a typed layer, a preload library and a fuzzer alike.
//! [`SharedFile::ioctl`] is the same for dma-bufs and sync_files.

pub use crate::base::bugs::Bug;
pub use crate::base::cache::Caches;
pub use crate::base::memory::Backing;
pub use crate::base::profile::{DriverProfile, Iommu};
pub use crate::entry::model::Model;
pub use crate::files::drm_file::DrmFile;
pub use crate::files::shared_file::SharedFile;
pub use crate::jobs::job::JobCounts;
pub use crate::objects::mapping::Mapping;
pub use rocket_uapi::{Arena, Caller, Descriptor, OwnProcess, Wake};
