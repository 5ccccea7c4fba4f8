// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that only this suite makes.

use rocket_uapi::{PLAIN_REQUESTS, sys};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// CREATE_BO that passes 8 bytes: size, handle, and the word after them.
pub(crate) const SHORT_CREATE_BO: u32 = sys::CREATE_BO ^ (24 ^ 8) << 16;
/// SYNCOBJ_CREATE (drm.h): a handle and flags, 32 bits each.
pub(crate) const SYNCOBJ_CREATE: u32 = 0xc008_64bf;
/// A driver ioctl that rocket does not have: number 4, 8 bytes, written.
pub(crate) const UNKNOWN_DRIVER_IOCTL: u32 = 0x4008_6444;
/// An ioctl with a letter that is not DRM's, 8 bytes, written.
pub(crate) const NOT_DRM: u32 = 0x4008_7a44;
/// GEM_FLINK (drm.h): a handle, and a name that the kernel writes, 32 bits each.
pub(crate) const GEM_FLINK: u32 = 0xc008_640a;
/// SYNC_IOC_SET_DEADLINE (sync_file.h): a time and padding, 64 bits each.
pub(crate) const SET_DEADLINE: u32 = 0x4010_3e05;
/// DMA_HEAP_IOCTL_ALLOC (dma-heap.h): [`HeapAllocation`].
pub(crate) const DMA_HEAP_ALLOC: u32 = 0xc018_4800;

/// Other requests of this suite whose arguments hold no address.
const OWN_PLAIN: [u32; 9] = [
    sys::GEM_CLOSE,
    sys::SW_SYNC_INC,
    SHORT_CREATE_BO,
    SYNCOBJ_CREATE,
    UNKNOWN_DRIVER_IOCTL,
    NOT_DRM,
    GEM_FLINK,
    SET_DEADLINE,
    DMA_HEAP_ALLOC,
];

/// `struct dma_heap_allocation_data`.
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable)]
pub(crate) struct HeapAllocation {
    pub(crate) len: u64,
    pub(crate) fd: u32,
    pub(crate) fd_flags: u32,
    pub(crate) heap_flags: u64,
}

/// The bytes of `arg`. Panics unless the kernel stays within them and follows no address in
/// them.
pub(crate) fn plain<T: FromBytes + IntoBytes>(request: u32, arg: &mut T) -> &mut [u8] {
    let is_plain = PLAIN_REQUESTS.contains(&request) || OWN_PLAIN.contains(&request);
    assert!(is_plain && sys::arg_len(request) <= size_of::<T>());
    arg.as_mut_bytes()
}
