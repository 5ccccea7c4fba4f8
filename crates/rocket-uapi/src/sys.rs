// SPDX-License-Identifier: MIT OR Apache-2.0
//! The uAPI in structs and numbers: `drm/rocket_accel.h` (Linux 6.18, the same
//! to 7.3), and the few ioctls of DRM core, dma-buf and sync_file around it.
//! `cargo xtask abi` compares with the kernel's header.

use rustix::ioctl::{Opcode, opcode};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// ioctl type of DRM (`DRM_IOCTL_BASE`).
const DRM: u8 = b'd';
/// ioctl type of dma-buf (`DMA_BUF_BASE`).
const DMA_BUF: u8 = b'b';
/// ioctl type of sync_file (`SYNC_IOC_MAGIC`).
const SYNC: u8 = b'>';

/// Declares a struct of the uAPI with its size and offsets asserted.
macro_rules! uapi {
    ($(#[$doc:meta])* $name:ident: $size:literal { $($(#[$fdoc:meta])* $offset:literal $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $($(#[$fdoc])* pub $field: $type,)* }
        const _: () = {
            assert!(size_of::<$name>() == $size);
            assert!(align_of::<$name>() == 8 || align_of::<$name>() == 4);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}

uapi! {
    /// `struct drm_rocket_create_bo`.
    CreateBo: 24 {
        /// In: bytes.
        0 size: u32,
        /// Out: GEM handle.
        4 handle: u32,
        /// Out: the BO's IOVA.
        8 dma_address: u64,
        /// Out: offset to mmap.
        16 offset: u64,
    }
}
uapi! {
    /// `struct drm_rocket_submit`.
    Submit: 24 {
        /// Pointer to the jobs.
        0 jobs: u64,
        /// How many.
        8 job_count: u32,
        /// Distance of jobs, at least 40.
        12 job_struct_size: u32,
        /// 0.
        16 reserved: u64,
    }
}
uapi! {
    /// `struct drm_rocket_job`.
    Job: 40 {
        /// Pointer to the tasks.
        0 tasks: u64,
        /// Pointer to the handles of BOs that are only read.
        8 in_bo_handles: u64,
        /// Pointer to the handles of BOs that are written.
        16 out_bo_handles: u64,
        /// How many tasks.
        24 task_count: u32,
        /// Distance of tasks, at least 8.
        28 task_struct_size: u32,
        /// How many handles at `in_bo_handles`.
        32 in_bo_handle_count: u32,
        /// How many handles at `out_bo_handles`.
        36 out_bo_handle_count: u32,
    }
}
uapi! {
    /// `struct drm_rocket_task`.
    Task: 8 {
        /// IOVA of the commands.
        0 regcmd: u32,
        /// Number of 64-bit commands.
        4 regcmd_count: u32,
    }
}
uapi! {
    /// `struct drm_rocket_prep_bo`.
    PrepBo: 16 {
        /// GEM handle.
        0 handle: u32,
        /// 0.
        4 reserved: u32,
        /// Absolute CLOCK_MONOTONIC time.
        8 timeout_ns: i64,
    }
}
uapi! {
    /// `struct drm_rocket_fini_bo`.
    FiniBo: 8 {
        /// GEM handle.
        0 handle: u32,
        /// 0.
        4 reserved: u32,
    }
}
uapi! {
    /// `struct drm_version` on 64-bit kernels.
    Version: 64 {
        /// Out.
        0 version_major: i32,
        /// Out.
        4 version_minor: i32,
        /// Out.
        8 version_patchlevel: i32,
        /// Explicit padding.
        12 padding: u32,
        /// In: room, out: length.
        16 name_len: u64,
        /// Pointer.
        24 name: u64,
        /// In: room, out: length.
        32 date_len: u64,
        /// Pointer.
        40 date: u64,
        /// In: room, out: length.
        48 desc_len: u64,
        /// Pointer.
        56 desc: u64,
    }
}
uapi! {
    /// `struct drm_gem_close`.
    GemClose: 8 {
        /// GEM handle.
        0 handle: u32,
        /// 0.
        4 padding: u32,
    }
}
uapi! {
    /// `struct drm_prime_handle`.
    PrimeHandle: 12 {
        /// GEM handle.
        0 handle: u32,
        /// DRM_CLOEXEC, DRM_RDWR.
        4 flags: u32,
        /// dma-buf file descriptor.
        8 fd: i32,
    }
}
uapi! {
    /// `struct dma_buf_export_sync_file`.
    ExportSyncFile: 8 {
        /// Which fences: those that a reader would wait for, or a writer.
        0 flags: u32,
        /// Out: sync_file file descriptor.
        4 fd: i32,
    }
}
uapi! {
    /// `struct sync_file_info`.
    SyncFileInfo: 56 {
        /// Out.
        0 name: [u8; 32],
        /// Out: 0 active, 1 signalled, negative: an error.
        32 status: i32,
        /// 0.
        36 flags: u32,
        /// In: room for fence details; 0 asks for none.
        40 num_fences: u32,
        /// Explicit padding.
        44 padding: u32,
        /// Pointer.
        48 sync_fence_info: u64,
    }
}

/// `DMA_BUF_SYNC_READ`: the fences that a reader waits for, those of writers.
pub const DMA_BUF_SYNC_READ: u32 = 1;
/// `DRM_CLOEXEC`.
pub const DRM_CLOEXEC: u32 = rustix::fs::OFlags::CLOEXEC.bits();
/// `DRM_RDWR`.
pub const DRM_RDWR: u32 = rustix::fs::OFlags::RDWR.bits();

/// Request of DRM_IOCTL_VERSION.
pub const VERSION: Opcode = opcode::read_write::<Version>(DRM, 0x00);
/// Request of DRM_IOCTL_GEM_CLOSE.
pub const GEM_CLOSE: Opcode = opcode::write::<GemClose>(DRM, 0x09);
/// Request of DRM_IOCTL_PRIME_HANDLE_TO_FD.
pub const PRIME_HANDLE_TO_FD: Opcode = opcode::read_write::<PrimeHandle>(DRM, 0x2d);
/// Request of DRM_IOCTL_ROCKET_CREATE_BO.
pub const CREATE_BO: Opcode = opcode::read_write::<CreateBo>(DRM, 0x40);
/// Request of DRM_IOCTL_ROCKET_SUBMIT.
pub const SUBMIT: Opcode = opcode::write::<Submit>(DRM, 0x41);
/// Request of DRM_IOCTL_ROCKET_PREP_BO.
pub const PREP_BO: Opcode = opcode::write::<PrepBo>(DRM, 0x42);
/// Request of DRM_IOCTL_ROCKET_FINI_BO.
pub const FINI_BO: Opcode = opcode::write::<FiniBo>(DRM, 0x43);
/// Request of DMA_BUF_IOCTL_EXPORT_SYNC_FILE.
pub const EXPORT_SYNC_FILE: Opcode = opcode::read_write::<ExportSyncFile>(DMA_BUF, 2);
/// Request of SYNC_IOC_FILE_INFO.
pub const SYNC_FILE_INFO: Opcode = opcode::read_write::<SyncFileInfo>(SYNC, 4);

// The numbers as they stand in the kernel's headers, compiled and printed.
const _: () = {
    assert!(CREATE_BO == 0xc018_6440);
    assert!(SUBMIT == 0x4018_6441);
    assert!(PREP_BO == 0x4010_6442);
    assert!(FINI_BO == 0x4008_6443);
    assert!(VERSION == 0xc040_6400);
    assert!(GEM_CLOSE == 0x4008_6409);
    assert!(PRIME_HANDLE_TO_FD == 0xc00c_642d);
    assert!(EXPORT_SYNC_FILE == 0xc008_6202);
    assert!(SYNC_FILE_INFO == 0xc038_3e04);
};
