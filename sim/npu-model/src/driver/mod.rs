// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel driver in software, from the ioctls of `/dev/accel/accel0` to the
//! register windows of the cores.
//!
//! It behaves like the `rocket` driver of Linux 7.2, which was run unmodified in
//! QEMU on a modelled NPU and observed call by call. Items that were only read
//! in the source say so. `docs/driver.md` has the list.
//!
//! | file | what it is in the kernel |
//! |---|---|
//! | `model`, `device` | the device, and the state that its files share |
//! | `ioctl` | drm_ioctl and the handlers |
//! | `drm_file`, `file_operations` | an open file: handles, address space, queue; its system calls |
//! | `gem` | buffer objects, handles, reservations |
//! | `release`, `life`, `orphans` | the end of a file: drm_release, rocket_postclose |
//! | `iova`, `iommu` | drm_mm, the IOMMU domain |
//! | `drm_file_mmap`, `mapping`, `client_map` | mappings in this process and in others |
//! | `shared_file`, `dma_buf`, `sync_file`, `sw_sync` | PRIME; files other than the device node |
//! | `job`, `sched`, `fence`, `resv` | SUBMIT, the DRM scheduler, dma_fence, dma_resv |
//! | `run`, `hardware` | a job on its core; the register accesses of one task |
//! | `memory`, `cache` | pages; the CPU's caches |
//! | `profile`, `bugs`, `health` | differences between kernels; bugs; whether the kernel is down |
//!
//! The interface is raw: [`DrmFile::ioctl`] takes bytes and returns an errno, so
//! it serves a typed layer, a preload library and a fuzzer alike.
//! [`SharedFile::ioctl`] is the same for dma-bufs and sync_files.

mod abi;
mod bugs;
mod cache;
mod client_map;
mod device;
mod dma_buf;
mod drm_file;
mod drm_file_mmap;
mod fence;
#[allow(unsafe_code)]
mod file_operations;
mod gem;
mod hardware;
mod health;
mod ioctl;
mod iommu;
mod iova;
mod job;
mod life;
#[allow(unsafe_code)]
mod mapping;
#[allow(unsafe_code)]
mod memory;
mod model;
mod orphans;
mod profile;
mod release;
mod resv;
mod run;
mod sched;
mod shared_file;
mod sw_sync;
mod sync_file;

pub use bugs::Bug;
pub use cache::Caches;
pub use drm_file::DrmFile;
pub use job::JobCounts;
pub use mapping::Mapping;
pub use memory::Backing;
pub use model::Model;
pub use profile::{DriverProfile, Iommu};
pub use rocket_uapi::{Arena, Caller, Descriptor, OwnProcess, Wake};
pub use shared_file::SharedFile;
