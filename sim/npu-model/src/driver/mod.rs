// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel driver: what a client of `/dev/accel/accel0` meets between its
//! ioctls and the register windows of the cores.
//!
//! Behaviour follows the `rocket` driver of Linux 7.2, run unmodified in
//! QEMU above a modelled NPU and observed call by call; where it was only
//! read in the source the item says so. `docs/driver.md` has the list.
//!
//! | file | what it is in the kernel |
//! |---|---|
//! | `model`, `device` | the device, and what its files share |
//! | `ioctl` | drm_ioctl and the handlers |
//! | `file` | an open file: handles, address space, queue |
//! | `gem` | buffer objects, handles, reservations |
//! | `release`, `life`, `orphans` | the end of a file: drm_release, rocket_postclose |
//! | `iova`, `iommu` | drm_mm, the IOMMU domain |
//! | `mmap`, `mapping`, `client_map` | mappings, those of other processes |
//! | `shared_file`, `dma_buf`, `sync_file`, `sw_sync` | PRIME; the files that are not the device node's |
//! | `job`, `sched`, `fence`, `resv` | SUBMIT, the DRM scheduler, dma_fence, dma_resv |
//! | `run`, `hardware` | a job on its core; the register accesses of one task |
//! | `memory`, `cache` | pages; the CPU's caches |
//! | `profile`, `bugs`, `health` | what differs between kernels; what they do wrong, and how they fare |
//!
//! Nothing here knows Rust callers: [`DrmFile::ioctl`] takes bytes and gives
//! an errno, so a typed layer, a preload library and a fuzzer are served
//! alike; [`SharedFile::ioctl`] is the same for dma-bufs and sync_files.

mod abi;
mod bugs;
mod cache;
mod client_map;
mod device;
mod dma_buf;
mod drm_file;
mod drm_file_mmap;
mod fence;
mod gem;
mod hardware;
mod health;
mod ioctl;
mod iommu;
mod iova;
mod job;
mod life;
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

pub use bugs::{Bug, DriverBugs};
pub use cache::Caches;
pub use drm_file::DrmFile;
pub use hardware::{Kicked, kick};
pub use job::JobCounts;
pub use mapping::Mapping;
pub use memory::Backing;
pub use model::Model;
pub use profile::{DriverProfile, Iommu};
pub use rocket_uapi::{Arena, Caller, Descriptor, Efault, OwnProcess, UserMemory, Wake};
pub use shared_file::SharedFile;
