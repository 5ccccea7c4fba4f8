// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's interface has and [`rocket_uapi::sys`] leaves out, because no
//! client of this project needs it (include/uapi/drm/drm.h, include/uapi/linux/dma-buf.h
//! and sync_file.h, Linux 6.18).

use std::ops::RangeInclusive;

use rocket_uapi::sys;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `DRM_IOCTL_GET_UNIQUE`, the bus id.
pub(crate) const GET_UNIQUE: u32 = 0xc010_6401;
/// `DRM_IOCTL_GEM_FLINK`, for root only: no client here is.
pub(crate) const GEM_FLINK: u32 = 0xc008_640a;
/// `DRM_IOCTL_GEM_OPEN`, as GEM_FLINK.
pub(crate) const GEM_OPEN: u32 = 0xc010_640b;

/// Numbers of the core requests for which this device lacks the feature
/// (mode setting and sync objects): they end in `EOPNOTSUPP`.
pub(crate) const UNSUPPORTED_CORE: [RangeInclusive<u32>; 3] =
    [0x0d..=0x0d, 0xa0..=0xbe, 0xbf..=0xd0];

/// `DRM_CAP_PRIME`.
pub(crate) const CAP_PRIME: u64 = 0x5;
/// `DRM_CAP_TIMESTAMP_MONOTONIC`.
pub(crate) const CAP_TIMESTAMP_MONOTONIC: u64 = 0x6;
/// `DRM_CAP_SYNCOBJ`.
pub(crate) const CAP_SYNCOBJ: u64 = 0x13;
/// `DRM_CAP_SYNCOBJ_TIMELINE`.
pub(crate) const CAP_SYNCOBJ_TIMELINE: u64 = 0x14;
/// `DRM_PRIME_CAP_IMPORT | DRM_PRIME_CAP_EXPORT`.
pub(crate) const PRIME_CAP_BOTH: u64 = 3;

/// `DMA_BUF_SET_NAME_A`, with the size of a 32-bit pointer.
pub(crate) const DMA_BUF_SET_NAME_A: u32 = 0x4004_6201;
/// `SYNC_IOC_SET_DEADLINE`.
pub(crate) const SYNC_SET_DEADLINE: u32 = 0x4010_3e05;

/// `DMA_BUF_SYNC_RW`.
pub(crate) const DMA_BUF_SYNC_RW: u32 = sys::DMA_BUF_SYNC_READ | sys::DMA_BUF_SYNC_WRITE;

/// `struct sync_set_deadline`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct SyncSetDeadline {
    pub(crate) deadline_ns: u64,
    pub(crate) pad: u64,
}
