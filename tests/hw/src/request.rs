// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of requests that only this suite makes.

use rocket_uapi::{PlainArgument, sys};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Declares arguments that `sys` does not have, as in the kernel's headers.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident($inner:ty): $request:expr;)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(FromBytes, IntoBytes, Immutable)]
        pub(crate) struct $name(pub(crate) $inner);

        const _: () = assert!(sys::arg_len($request) <= size_of::<$name>());
        // SAFETY: the size in the request is that of the type or less, as was just
        // checked, and its fields are numbers, handles and descriptors.
        unsafe impl PlainArgument for $name {
            const REQUESTS: &'static [u32] = &[$request];
        }
    )*};
}

arguments! {
    /// How far to advance a timeline (sw_sync.c).
    Advance(u32): sys::SW_SYNC_INC;
    /// CREATE_BO that passes 8 bytes: size, handle, and the word after them.
    ShortCreateBo([u32; 3]): sys::CREATE_BO ^ (24 ^ 8) << 16;
    /// SYNCOBJ_CREATE (drm.h): a handle and flags.
    SyncobjCreate([u32; 2]): 0xc008_64bf;
    /// A driver ioctl that rocket does not have: number 4, 8 bytes, written.
    UnknownDriverIoctl([u32; 2]): 0x4008_6444;
    /// An ioctl with a letter that is not DRM's, 8 bytes, written.
    NotDrm([u32; 2]): 0x4008_7a44;
    /// GEM_FLINK (drm.h): a handle, and a name that the kernel writes.
    GemFlink([u32; 2]): 0xc008_640a;
    /// SYNC_IOC_SET_DEADLINE (sync_file.h): a time and 64 bits of padding.
    SetDeadline([u64; 2]): 0x4010_3e05;
}

const DMA_HEAP_ALLOC: u32 = 0xc018_4800;

/// `struct dma_heap_allocation_data`, of DMA_HEAP_IOCTL_ALLOC (dma-heap.h).
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable)]
pub(crate) struct HeapAllocation {
    pub(crate) len: u64,
    pub(crate) fd: u32,
    pub(crate) fd_flags: u32,
    pub(crate) heap_flags: u64,
}

const _: () = assert!(sys::arg_len(DMA_HEAP_ALLOC) == size_of::<HeapAllocation>());

// SAFETY: the size is that in the request, as was just checked, and the fields are numbers
// and a descriptor.
unsafe impl PlainArgument for HeapAllocation {
    const REQUESTS: &'static [u32] = &[DMA_HEAP_ALLOC];
}
