// SPDX-License-Identifier: MIT OR Apache-2.0
//! The argument type of each request, which makes most raw ioctls safe calls.

use rocket_uapi::sys;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The argument of one request.
///
/// # Safety
/// A kernel that gets `NR` reads and writes at most the bytes of this type at the
/// argument, and follows no address in them.
pub(crate) unsafe trait Request: FromBytes + IntoBytes + Immutable {
    const NR: u32;
}

/// Declares the arguments of requests, as in the kernel's headers.
macro_rules! requests {
    ($($argument:ty: $request:expr;)*) => {$(
        const _: () = assert!(sys::arg_len($request) <= size_of::<$argument>());
        // SAFETY: the size in the request is that of the type or less, as was just
        // checked, and its fields are numbers, handles and descriptors.
        unsafe impl Request for $argument {
            const NR: u32 = $request;
        }
    )*};
}

/// Declares arguments that `sys` does not have.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident($inner:ty): $request:expr;)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(FromBytes, IntoBytes, Immutable)]
        pub(crate) struct $name(pub(crate) $inner);

        requests! { $name: $request; }
    )*};
}

requests! {
    sys::CreateBo: sys::CREATE_BO;
    sys::PrepBo: sys::PREP_BO;
    sys::FiniBo: sys::FINI_BO;
    sys::GetCap: sys::GET_CAP;
    sys::ExportSyncFile: sys::EXPORT_SYNC_FILE;
    sys::ImportSyncFile: sys::IMPORT_SYNC_FILE;
    sys::DmaBufSync: sys::DMA_BUF_SYNC;
    sys::SyncMergeData: sys::SYNC_MERGE;
    sys::SwSyncCreateFence: sys::SW_SYNC_CREATE_FENCE;
    HeapAllocation: 0xc018_4800;
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

/// `struct dma_heap_allocation_data`, of DMA_HEAP_IOCTL_ALLOC (dma-heap.h).
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable)]
pub(crate) struct HeapAllocation {
    pub(crate) len: u64,
    pub(crate) fd: u32,
    pub(crate) fd_flags: u32,
    pub(crate) heap_flags: u64,
}
