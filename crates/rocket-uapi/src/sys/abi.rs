// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures and request numbers, exactly as the kernel's headers define them. Clients,
//! tools and the model's driver all use this file.
//!
//! Sources: `include/uapi/drm/rocket_accel.h` (Linux 6.18, unchanged to 7.3.4), `drm.h`,
//! `linux/dma-buf.h`, `linux/sync_file.h`, and for timelines `drivers/dma-buf/sw_sync.c`,
//! which has no header. The compiler checks sizes, alignments and offsets, and compares the
//! structures of the DRM core with those of drm-ffi. `abi/print_abi.c` prints the other
//! structures and all request numbers from the kernel's headers, and `cargo xtask abi`
//! compares them.
//!
//! A new ioctl needs its structure, number and entry of [`REQUESTS`] here, a line in
//! `abi/print_abi.c`, a wrapper in `calls.rs`, and an implementation in the model. The layers
//! between pass on requests that they do not know:
//!
//! * The preload library and the server copy the argument in and out. They refuse, with a
//!   message, an argument that holds addresses of the program's memory (rocket-preload,
//!   `named.rs`).
//! * A forwarded node does not receive the request; a warning says so.
//! * The recorder ends with an error if the driver accepts the request.
//!
//! Offsets hold for 64-bit machines, the only ones with this NPU.

use std::mem::offset_of;

use rustix::ioctl::opcode;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Layout of a structure, to compare it with the kernel's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructLayout {
    /// Name in the kernel's header, without `struct`.
    pub name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// Name, offset and size in bytes of each field.
    pub fields: &'static [(&'static str, usize, usize)],
}

/// Declares structures, and checks their layouts.
macro_rules! layouts {
    ($(
        $(#[$doc:meta])*
        $name:ident, size $size:literal, align $align:literal {
            $( $(#[$field_doc:meta])* $offset:literal $field:ident: $type:ty, )*
        }
    )+) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(
                Clone, Copy, Debug, Default, PartialEq, Eq,
                FromBytes, IntoBytes, Immutable, KnownLayout,
            )]
            pub struct $name { $( $(#[$field_doc])* pub $field: $type, )* }

            const _: () = {
                assert!(size_of::<$name>() == $size);
                assert!(align_of::<$name>() == $align);
                $( assert!(offset_of!($name, $field) == $offset); )*
            };
        )+
    };
}

/// Compares structures with those of drm-ffi.
macro_rules! same_as_drm_ffi {
    ($( $name:ident = $theirs:ident { $( $field:ident )* } )+) => {$(
        const _: () = {
            assert!(size_of::<$name>() == size_of::<drm_ffi::$theirs>());
            assert!(align_of::<$name>() == align_of::<drm_ffi::$theirs>());
            $( assert!(offset_of!($name, $field) == offset_of!(drm_ffi::$theirs, $field)); )*
        };
    )+};
}

/// Declares the structures of the kernel's headers, and the list of their layouts.
macro_rules! uapi_structs {
    ($(
        $(#[$doc:meta])*
        $name:ident = $c_name:literal, size $size:literal, align $align:literal {
            $( $(#[$field_doc:meta])* $offset:literal $field:ident: $type:ty, )*
        }
    )+) => {
        layouts! {$(
            $(#[$doc])*
            $name, size $size, align $align {
                $( $(#[$field_doc])* $offset $field: $type, )*
            }
        )+}

        /// The structures of drivers' headers, to compare them with those headers.
        pub const LAYOUTS: &[StructLayout] = &[
            $( StructLayout {
                name: $c_name,
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                fields: &[
                    $( (stringify!($field), offset_of!($name, $field), size_of::<$type>()), )*
                ],
            }, )+
        ];
    };
}

uapi_structs! {
    /// Argument of CREATE_BO.
    CreateBo = "drm_rocket_create_bo", size 24, align 8 {
        /// Requested bytes.
        0 size: u32,
        /// Out: GEM handle.
        4 handle: u32,
        /// Out: IOVA in this file's address space. 0 is a valid IOVA.
        8 dma_address: u64,
        /// Out: mmap offset in the node.
        16 offset: u64,
    }

    /// Argument of SUBMIT.
    Submit = "drm_rocket_submit", size 24, align 8 {
        /// Address of an array of [`Job`].
        0 jobs: u64,
        /// Number of jobs.
        8 job_count: u32,
        /// Stride of the jobs: size of [`Job`].
        12 job_struct_size: u32,
        /// Always 0.
        16 reserved: u64,
    }

    /// One job of a SUBMIT.
    Job = "drm_rocket_job", size 40, align 8 {
        /// Address of an array of [`Task`].
        0 tasks: u64,
        /// Address of an array of handles that the job only reads.
        8 in_bo_handles: u64,
        /// Address of an array of handles that the job writes.
        16 out_bo_handles: u64,
        /// Number of tasks.
        24 task_count: u32,
        /// Stride of the tasks: size of [`Task`].
        28 task_struct_size: u32,
        /// Number of read handles.
        32 in_bo_handle_count: u32,
        /// Number of written handles.
        36 out_bo_handle_count: u32,
    }

    /// One program of a job.
    Task = "drm_rocket_task", size 8, align 4 {
        /// IOVA of the command words.
        0 regcmd: u32,
        /// Number of 64-bit words.
        4 regcmd_count: u32,
    }

    /// Argument of PREP_BO.
    PrepBo = "drm_rocket_prep_bo", size 16, align 8 {
        /// GEM handle.
        0 handle: u32,
        /// Always 0.
        4 reserved: u32,
        /// Absolute CLOCK_MONOTONIC, nanoseconds.
        8 timeout_ns: i64,
    }

    /// Argument of FINI_BO.
    FiniBo = "drm_rocket_fini_bo", size 8, align 4 {
        /// GEM handle.
        0 handle: u32,
        /// Always 0.
        4 reserved: u32,
    }

    /// Argument of a dma-buf's EXPORT_SYNC_FILE (since Linux 6.0).
    ExportSyncFile = "dma_buf_export_sync_file", size 8, align 4 {
        /// [`DMA_BUF_SYNC_READ`]: fences that a reader waits for.
        0 flags: u32,
        /// Out: sync_file.
        4 fd: i32,
    }

    /// Argument of a dma-buf's IMPORT_SYNC_FILE (since Linux 6.0).
    ImportSyncFile = "dma_buf_import_sync_file", size 8, align 4 {
        /// [`DMA_BUF_SYNC_READ`]: add as a reader's fence; [`DMA_BUF_SYNC_WRITE`]: as a
        /// writer's.
        0 flags: u32,
        /// sync_file.
        4 fd: i32,
    }

    /// Argument of a dma-buf's DMA_BUF_IOCTL_SYNC.
    DmaBufSync = "dma_buf_sync", size 8, align 8 {
        /// [`DMA_BUF_SYNC_READ`], [`DMA_BUF_SYNC_WRITE`]; [`DMA_BUF_SYNC_END`].
        0 flags: u64,
    }

    /// Argument of a sync_file's SYNC_IOC_MERGE.
    SyncMergeData = "sync_merge_data", size 48, align 4 {
        /// Name of the new sync_file.
        0 name: [u8; 32],
        /// The other sync_file.
        32 fd2: i32,
        /// Out: the new sync_file.
        36 fence: i32,
        /// Always 0.
        40 flags: u32,
        /// Always 0.
        44 pad: u32,
    }

    /// One fence in the answer of SYNC_IOC_FILE_INFO.
    SyncFenceInfo = "sync_fence_info", size 80, align 8 {
        /// Name of the fence's timeline.
        0 obj_name: [u8; 32],
        /// Name of the driver that made the fence.
        32 driver_name: [u8; 32],
        /// 0 active, 1 signalled, negative errno.
        64 status: i32,
        /// Always 0.
        68 flags: u32,
        /// Time of the signal: CLOCK_MONOTONIC, nanoseconds.
        72 timestamp_ns: u64,
    }

    /// Argument of a sync_file's SYNC_IOC_FILE_INFO.
    SyncFileInfo = "sync_file_info", size 56, align 8 {
        /// Out: the name of the sync_file.
        0 name: [u8; 32],
        /// Out: 0 active, 1 signalled, negative errno.
        32 status: i32,
        /// Always 0.
        36 flags: u32,
        /// In: capacity of the array at `sync_fence_info`; out: number of fences.
        40 num_fences: u32,
        /// Always 0.
        44 pad: u32,
        /// Address of an array of [`SyncFenceInfo`], one for each fence.
        48 sync_fence_info: u64,
    }
}

layouts! {
    /// Argument of the DRM core's VERSION.
    Version, size 64, align 8 {
        /// Out: major version of the driver.
        0 version_major: i32,
        /// Out: minor version.
        4 version_minor: i32,
        /// Out: patch level.
        8 version_patchlevel: i32,
        /// Padding, unnamed in C.
        12 padding: u32,
        /// In: buffer size at `name`; out: length of the name.
        16 name_len: u64,
        /// Address of a buffer for the name, which gets no terminator.
        24 name: u64,
        /// As `name_len`, of the date.
        32 date_len: u64,
        /// As `name`, for the date.
        40 date: u64,
        /// As `name_len`, of the description.
        48 desc_len: u64,
        /// As `name`, for the description.
        56 desc: u64,
    }

    /// Argument of the DRM core's GET_CAP.
    GetCap, size 16, align 8 {
        /// Number of the capability (`DRM_CAP_*`).
        0 capability: u64,
        /// Out: its value.
        8 value: u64,
    }

    /// Argument of the DRM core's GEM_CLOSE.
    GemClose, size 8, align 4 {
        /// GEM handle.
        0 handle: u32,
        /// Not read.
        4 pad: u32,
    }

    /// Argument of PRIME_HANDLE_TO_FD and PRIME_FD_TO_HANDLE.
    PrimeHandle, size 12, align 4 {
        /// GEM handle.
        0 handle: u32,
        /// `O_CLOEXEC`, `O_RDWR`.
        4 flags: u32,
        /// dma-buf.
        8 fd: i32,
    }
}

same_as_drm_ffi! {
    Version = drm_version {
        version_major version_minor version_patchlevel
        name_len name date_len date desc_len desc
    }
    GetCap = drm_get_cap { capability value }
    GemClose = drm_gem_close { handle pad }
    PrimeHandle = drm_prime_handle { handle flags fd }
}

/// Argument of a timeline's SW_SYNC_IOC_CREATE_FENCE.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct SwSyncCreateFence {
    /// The fence is signalled when the timeline reaches this value.
    pub value: u32,
    /// Name of the fence.
    pub name: [u8; 32],
    /// Out: sync_file.
    pub fence: i32,
}

/// `DMA_BUF_SYNC_READ`: the fences of the BO's writers.
pub const DMA_BUF_SYNC_READ: u32 = 1;
/// `DMA_BUF_SYNC_WRITE`: the fences of all users of the BO.
pub const DMA_BUF_SYNC_WRITE: u32 = 2;
/// `DMA_BUF_SYNC_END`: the end of an access.
pub const DMA_BUF_SYNC_END: u32 = 4;

/// `DRM_CLOEXEC`.
pub const DRM_CLOEXEC: u32 = drm::CLOEXEC;
/// `DRM_RDWR`.
pub const DRM_RDWR: u32 = drm::RDWR;

/// [`SyncFileInfo::status`] of a fence that has not signalled.
pub const SYNC_STATUS_ACTIVE: i32 = 0;

/// Letter of DRM's requests (`DRM_IOCTL_BASE`).
const DRM: u8 = drm_ffi::DRM_IOCTL_BASE;
/// Letter of dma-buf's requests (`DMA_BUF_BASE`).
const DMA_BUF: u8 = b'b';
/// Letter of sync_file's requests (`SYNC_IOC_MAGIC`).
const SYNC: u8 = b'>';
/// Letter of a timeline's requests (`SW_SYNC_IOC_MAGIC`).
const SW_SYNC: u8 = b'W';

/// CREATE_BO (since 6.18).
pub const CREATE_BO: u32 = opcode::read_write::<CreateBo>(DRM, 0x40) as u32;
/// SUBMIT (since 6.18).
pub const SUBMIT: u32 = opcode::write::<Submit>(DRM, 0x41) as u32;
/// PREP_BO (since 6.18).
pub const PREP_BO: u32 = opcode::write::<PrepBo>(DRM, 0x42) as u32;
/// FINI_BO (since 6.18).
pub const FINI_BO: u32 = opcode::write::<FiniBo>(DRM, 0x43) as u32;
/// DRM core: VERSION.
pub const VERSION: u32 = opcode::read_write::<Version>(DRM, 0x00) as u32;
/// DRM core: GEM_CLOSE.
pub const GEM_CLOSE: u32 = opcode::write::<GemClose>(DRM, 0x09) as u32;
/// DRM core: GET_CAP.
pub const GET_CAP: u32 = opcode::read_write::<GetCap>(DRM, 0x0c) as u32;
/// DRM core: PRIME_HANDLE_TO_FD.
pub const PRIME_HANDLE_TO_FD: u32 = opcode::read_write::<PrimeHandle>(DRM, 0x2d) as u32;
/// DRM core: PRIME_FD_TO_HANDLE.
pub const PRIME_FD_TO_HANDLE: u32 = opcode::read_write::<PrimeHandle>(DRM, 0x2e) as u32;
/// dma-buf: EXPORT_SYNC_FILE.
pub const EXPORT_SYNC_FILE: u32 = opcode::read_write::<ExportSyncFile>(DMA_BUF, 2) as u32;
/// dma-buf: IMPORT_SYNC_FILE.
pub const IMPORT_SYNC_FILE: u32 = opcode::write::<ImportSyncFile>(DMA_BUF, 3) as u32;
/// dma-buf: SYNC.
pub const DMA_BUF_SYNC: u32 = opcode::write::<DmaBufSync>(DMA_BUF, 0) as u32;
/// dma-buf: SET_NAME, with a 64-bit address instead of a structure.
pub const DMA_BUF_SET_NAME: u32 = opcode::write::<u64>(DMA_BUF, 1) as u32;
/// Longest name of a dma-buf, including its terminator, bytes (`DMA_BUF_NAME_LEN`).
pub const DMA_BUF_NAME_BYTES: usize = 32;
/// sync_file: MERGE.
pub const SYNC_MERGE: u32 = opcode::read_write::<SyncMergeData>(SYNC, 3) as u32;
/// sync_file: FILE_INFO.
pub const SYNC_FILE_INFO: u32 = opcode::read_write::<SyncFileInfo>(SYNC, 4) as u32;
/// Timeline: CREATE_FENCE.
pub const SW_SYNC_CREATE_FENCE: u32 = opcode::read_write::<SwSyncCreateFence>(SW_SYNC, 0) as u32;
/// Timeline: INC, with a u32.
pub const SW_SYNC_INC: u32 = opcode::write::<u32>(SW_SYNC, 1) as u32;
// The kernel exports no header of these two (Linux, drivers/dma-buf/sw_sync.c).
const _: () = assert!(SW_SYNC_CREATE_FENCE == 0xc028_5700 && SW_SYNC_INC == 0x4004_5701);

// GET_UNIQUE (the bus id) is left out on purpose: on any accel node it makes the kernel
// follow a null pointer while it holds a lock.

/// All request numbers, with their names in the kernel's headers.
pub const REQUESTS: [(&str, u32); 15] = [
    ("DRM_IOCTL_ROCKET_CREATE_BO", CREATE_BO),
    ("DRM_IOCTL_ROCKET_SUBMIT", SUBMIT),
    ("DRM_IOCTL_ROCKET_PREP_BO", PREP_BO),
    ("DRM_IOCTL_ROCKET_FINI_BO", FINI_BO),
    ("DRM_IOCTL_VERSION", VERSION),
    ("DRM_IOCTL_GET_CAP", GET_CAP),
    ("DRM_IOCTL_GEM_CLOSE", GEM_CLOSE),
    ("DRM_IOCTL_PRIME_HANDLE_TO_FD", PRIME_HANDLE_TO_FD),
    ("DRM_IOCTL_PRIME_FD_TO_HANDLE", PRIME_FD_TO_HANDLE),
    ("DMA_BUF_IOCTL_EXPORT_SYNC_FILE", EXPORT_SYNC_FILE),
    ("DMA_BUF_IOCTL_IMPORT_SYNC_FILE", IMPORT_SYNC_FILE),
    ("DMA_BUF_IOCTL_SYNC", DMA_BUF_SYNC),
    ("DMA_BUF_SET_NAME_B", DMA_BUF_SET_NAME),
    ("SYNC_IOC_MERGE", SYNC_MERGE),
    ("SYNC_IOC_FILE_INFO", SYNC_FILE_INFO),
];
