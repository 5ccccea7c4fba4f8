// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of the kernel's interface that [`rocket_uapi::sys`] leaves out, because no
//! client of this project needs them (include/uapi/drm/drm.h,
//! include/uapi/linux/dma-buf.h and sync_file.h, Linux 6.18).

use std::ops::RangeInclusive;

use drm::DriverCapability;
use rocket_uapi::sys;

/// `DRM_IOCTL_GET_UNIQUE`, the bus id.
pub(crate) const GET_UNIQUE: u32 = 0xc010_6401;
/// `DRM_IOCTL_GEM_FLINK`, for root only. The model treats no client as root.
pub(crate) const GEM_FLINK: u32 = 0xc008_640a;
/// `DRM_IOCTL_GEM_OPEN`, like GEM_FLINK.
pub(crate) const GEM_OPEN: u32 = 0xc010_640b;

/// Numbers of the core requests for features that this device lacks (mode setting and
/// sync objects). They return `EOPNOTSUPP`.
pub(crate) const UNSUPPORTED_CORE: [RangeInclusive<u32>; 3] =
    [0x0d..=0x0d, 0xa0..=0xbe, 0xbf..=0xd0];

pub(crate) const CAP_PRIME: u64 = DriverCapability::Prime as u64;
pub(crate) const CAP_TIMESTAMP_MONOTONIC: u64 = DriverCapability::MonotonicTimestamp as u64;
pub(crate) const CAP_SYNCOBJ: u64 = DriverCapability::SyncObj as u64;
pub(crate) const CAP_SYNCOBJ_TIMELINE: u64 = DriverCapability::TimelineSyncObj as u64;
/// `DRM_PRIME_CAP_IMPORT | DRM_PRIME_CAP_EXPORT`.
pub(crate) const PRIME_CAP_BOTH: u64 = 3;

/// `DMA_BUF_SET_NAME_A`, with the size of a 32-bit pointer.
pub(crate) const DMA_BUF_SET_NAME_A: u32 = 0x4004_6201;
/// `SYNC_IOC_SET_DEADLINE`: nanoseconds, and 64 bits of padding.
pub(crate) const SYNC_SET_DEADLINE: u32 = 0x4010_3e05;

pub(crate) const DMA_BUF_SYNC_RW: u32 = sys::DMA_BUF_SYNC_READ | sys::DMA_BUF_SYNC_WRITE;
