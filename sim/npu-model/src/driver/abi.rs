// SPDX-License-Identifier: MIT OR Apache-2.0
//! Request numbers and argument structures, as the kernel side knows them.
//!
//! An independent witness of `rocket_uapi::sys`, the clients' table: written down
//! apart from it, from include/uapi/drm/drm.h and include/uapi/drm/rocket_accel.h
//! (Linux 6.18, unchanged since). The tests below compare the two; all else in this
//! project reads one of them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Direction bit of a request: the kernel writes the argument back.
pub(crate) const IOC_READ: u32 = 2;
/// Direction bit of a request: the kernel reads the argument.
pub(crate) const IOC_WRITE: u32 = 1;

/// The letter of all DRM requests.
pub(crate) const DRM_IOCTL_BASE: u8 = b'd';

/// First request number of a driver.
pub(crate) const DRM_COMMAND_BASE: u8 = 0x40;
/// End of a driver's request numbers.
pub(crate) const DRM_COMMAND_END: u8 = 0xa0;

/// A request number taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestNumber(pub(crate) u32);

impl RequestNumber {
    pub(crate) const fn nr(self) -> u8 {
        (self.0 & 0xff) as u8
    }

    pub(crate) const fn letter(self) -> u8 {
        (self.0 >> 8 & 0xff) as u8
    }

    pub(crate) const fn size(self) -> usize {
        (self.0 >> 16 & 0x3fff) as usize
    }

    pub(crate) const fn direction(self) -> u32 {
        self.0 >> 30
    }
}

/// `DRM_IOCTL_VERSION`.
pub(crate) const VERSION: RequestNumber = RequestNumber(0xc040_6400);
/// `DRM_IOCTL_GET_UNIQUE`, the bus-id ioctl.
pub(crate) const GET_UNIQUE: RequestNumber = RequestNumber(0xc010_6401);
/// `DRM_IOCTL_GEM_CLOSE`.
pub(crate) const GEM_CLOSE: RequestNumber = RequestNumber(0x4008_6409);
/// `DRM_IOCTL_GEM_FLINK`.
pub(crate) const GEM_FLINK: RequestNumber = RequestNumber(0xc008_640a);
/// `DRM_IOCTL_GEM_OPEN`.
pub(crate) const GEM_OPEN: RequestNumber = RequestNumber(0xc010_640b);
/// `DRM_IOCTL_GET_CAP`.
pub(crate) const GET_CAP: RequestNumber = RequestNumber(0xc010_640c);
/// `DRM_IOCTL_PRIME_HANDLE_TO_FD`.
pub(crate) const PRIME_HANDLE_TO_FD: RequestNumber = RequestNumber(0xc00c_642d);
/// `DRM_IOCTL_PRIME_FD_TO_HANDLE`.
pub(crate) const PRIME_FD_TO_HANDLE: RequestNumber = RequestNumber(0xc00c_642e);
/// `DRM_IOCTL_ROCKET_CREATE_BO`.
pub(crate) const CREATE_BO: RequestNumber = RequestNumber(0xc018_6440);
/// `DRM_IOCTL_ROCKET_SUBMIT`.
pub(crate) const SUBMIT: RequestNumber = RequestNumber(0x4018_6441);
/// `DRM_IOCTL_ROCKET_PREP_BO`.
pub(crate) const PREP_BO: RequestNumber = RequestNumber(0x4010_6442);
/// `DRM_IOCTL_ROCKET_FINI_BO`.
pub(crate) const FINI_BO: RequestNumber = RequestNumber(0x4008_6443);

/// Numbers of the core requests for which this device lacks the feature
/// (mode setting and sync objects): they end in `EOPNOTSUPP`.
pub(crate) const UNSUPPORTED_CORE: [std::ops::RangeInclusive<u8>; 3] =
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

// dma-bufs and sync_files compare whole request numbers (include/uapi/linux/
// dma-buf.h and sync_file.h).

/// `DMA_BUF_IOCTL_SYNC`.
pub(crate) const DMA_BUF_SYNC: u32 = 0x4008_6200;
/// `DMA_BUF_SET_NAME_A`, with the size of a 32-bit pointer.
pub(crate) const DMA_BUF_SET_NAME_A: u32 = 0x4004_6201;
/// `DMA_BUF_SET_NAME_B`, with the size of a 64-bit pointer.
pub(crate) const DMA_BUF_SET_NAME_B: u32 = 0x4008_6201;
/// `DMA_BUF_IOCTL_EXPORT_SYNC_FILE`.
pub(crate) const DMA_BUF_EXPORT_SYNC_FILE: u32 = 0xc008_6202;
/// `DMA_BUF_IOCTL_IMPORT_SYNC_FILE`.
pub(crate) const DMA_BUF_IMPORT_SYNC_FILE: u32 = 0x4008_6203;
/// `SYNC_IOC_MERGE`.
pub(crate) const SYNC_IOC_MERGE: u32 = 0xc030_3e03;
/// `SYNC_IOC_FILE_INFO`.
pub(crate) const SYNC_IOC_FILE_INFO: u32 = 0xc038_3e04;
/// `SYNC_IOC_SET_DEADLINE`.
pub(crate) const SYNC_IOC_SET_DEADLINE: u32 = 0x4010_3e05;

/// `SW_SYNC_IOC_CREATE_FENCE` (drivers/dma-buf/sw_sync.c).
pub(crate) const SW_SYNC_CREATE_FENCE: u32 = 0xc028_5700;
/// `SW_SYNC_IOC_INC`, with a u32.
pub(crate) const SW_SYNC_INC: u32 = 0x4004_5701;

/// `DMA_BUF_SYNC_WRITE`.
pub(crate) const DMA_BUF_SYNC_WRITE: u64 = 2;
/// `DMA_BUF_SYNC_RW`.
pub(crate) const DMA_BUF_SYNC_RW: u64 = 3;
/// `DMA_BUF_SYNC_END`; a start has no flag.
pub(crate) const DMA_BUF_SYNC_END: u64 = 4;

/// Declares a C structure whose size the kernel fixes.
macro_rules! c_struct {
    ($(#[$doc:meta])* $name:ident($size:literal) { $($field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);
    };
}

c_struct! {
    /// `struct drm_version`; lengths and pointers of three strings.
    Version(64) {
        major: i32,
        minor: i32,
        patchlevel: i32,
        padding: u32,
        name_len: u64,
        name: u64,
        date_len: u64,
        date: u64,
        desc_len: u64,
        desc: u64,
    }
}

c_struct! {
    /// `struct drm_gem_close`.
    GemClose(8) { handle: u32, pad: u32, }
}

c_struct! {
    /// `struct drm_gem_flink`.
    GemFlink(8) { handle: u32, name: u32, }
}

c_struct! {
    /// `struct drm_gem_open`.
    GemOpen(16) { name: u32, handle: u32, size: u64, }
}

c_struct! {
    /// `struct drm_get_cap`.
    GetCap(16) { capability: u64, value: u64, }
}

c_struct! {
    /// `struct drm_prime_handle`.
    PrimeHandle(12) { handle: u32, flags: u32, fd: i32, }
}

c_struct! {
    /// `struct drm_rocket_create_bo`.
    CreateBo(24) { size: u32, handle: u32, dma_address: u64, offset: u64, }
}

c_struct! {
    /// `struct drm_rocket_submit`.
    Submit(24) { jobs: u64, job_count: u32, job_struct_size: u32, reserved: u64, }
}

c_struct! {
    /// `struct drm_rocket_prep_bo`.
    PrepBo(16) { handle: u32, reserved: u32, timeout_ns: i64, }
}

c_struct! {
    /// `struct drm_rocket_fini_bo`.
    FiniBo(8) { handle: u32, reserved: u32, }
}

c_struct! {
    /// `struct drm_rocket_job`.
    Job(40) {
        tasks: u64,
        in_bo_handles: u64,
        out_bo_handles: u64,
        task_count: u32,
        task_struct_size: u32,
        in_bo_handle_count: u32,
        out_bo_handle_count: u32,
    }
}

c_struct! {
    /// `struct drm_rocket_job` of kernels patched with `rocket_batch_submit`.
    FlaggedJob(48) { job: Job, flags: u32, reserved: u32, }
}

c_struct! {
    /// `struct drm_rocket_task`.
    Task(8) { regcmd: u32, regcmd_count: u32, }
}

c_struct! {
    /// `struct dma_buf_export_sync_file` and `dma_buf_import_sync_file`.
    DmaBufSyncFile(8) { flags: u32, fd: i32, }
}

c_struct! {
    /// `struct sync_merge_data`.
    SyncMerge(48) { name: [u8; 32], fd2: i32, fence: i32, flags: u32, pad: u32, }
}

c_struct! {
    /// `struct sync_fence_info`.
    SyncFenceInfo(80) {
        obj_name: [u8; 32],
        driver_name: [u8; 32],
        status: i32,
        flags: u32,
        timestamp_ns: u64,
    }
}

c_struct! {
    /// `struct sync_file_info`.
    SyncFileInfo(56) {
        name: [u8; 32],
        status: i32,
        flags: u32,
        num_fences: u32,
        pad: u32,
        sync_fence_info: u64,
    }
}

c_struct! {
    /// `struct sync_set_deadline`.
    SyncSetDeadline(16) { deadline_ns: u64, pad: u64, }
}

c_struct! {
    /// `struct sw_sync_create_fence_data`.
    SwSyncCreateFence(40) { value: u32, name: [u8; 32], fence: i32, }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use rocket_uapi::sys;

    use super::*;

    /// Size of a field, which an instance of its structure shows.
    fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
        size_of::<F>()
    }

    /// One structure of this table as `sys` describes its own.
    macro_rules! layout {
        ($theirs:ident, $name:ident { $($field:ident = $their_name:ident),* $(,)? }) => {{
            const FIELDS: &[&str] = &[$(stringify!($their_name)),*];
            let ours: Vec<(&str, usize, usize)> = FIELDS
                .iter()
                .copied()
                .zip([$((
                    offset_of!($name, $field),
                    size_of_field(|value: &$name| &value.$field),
                )),*])
                .map(|(name, (offset, size))| (name, offset, size))
                .collect();
            (sys::$theirs::LAYOUT, size_of::<$name>(), align_of::<$name>(), ours)
        }};
        ($name:ident { $($field:ident),* $(,)? }) => {
            layout!($name, $name { $($field = $field),* })
        };
    }

    /// Client and driver wrote the same header down twice.
    #[test]
    fn both_tables_have_the_same_structures() {
        let tables = [
            layout!(CreateBo {
                size,
                handle,
                dma_address,
                offset
            }),
            layout!(Submit {
                jobs,
                job_count,
                job_struct_size,
                reserved
            }),
            layout!(Job {
                tasks,
                in_bo_handles,
                out_bo_handles,
                task_count,
                task_struct_size,
                in_bo_handle_count,
                out_bo_handle_count,
            }),
            layout!(Task {
                regcmd,
                regcmd_count
            }),
            layout!(PrepBo {
                handle,
                reserved,
                timeout_ns
            }),
            layout!(FiniBo { handle, reserved }),
            layout!(Version, Version {
                major = version_major,
                minor = version_minor,
                patchlevel = version_patchlevel,
                padding = padding,
                name_len = name_len,
                name = name,
                date_len = date_len,
                date = date,
                desc_len = desc_len,
                desc = desc,
            }),
            layout!(GetCap { capability, value }),
            layout!(GemClose { handle, pad }),
            layout!(PrimeHandle { handle, flags, fd }),
            layout!(ExportSyncFile, DmaBufSyncFile { flags = flags, fd = fd }),
            layout!(ImportSyncFile, DmaBufSyncFile { flags = flags, fd = fd }),
            layout!(SyncMergeData, SyncMerge {
                name = name,
                fd2 = fd2,
                fence = fence,
                flags = flags,
                pad = pad,
            }),
            layout!(SyncFenceInfo {
                obj_name,
                driver_name,
                status,
                flags,
                timestamp_ns,
            }),
            layout!(SyncFileInfo {
                name,
                status,
                flags,
                num_fences,
                pad,
                sync_fence_info,
            }),
            layout!(SwSyncCreateFence { value, name, fence }),
        ];
        for (theirs, size, align, fields) in tables {
            assert_eq!(
                (theirs.size, theirs.align),
                (size, align),
                "{}",
                theirs.name
            );
            assert_eq!(theirs.fields, fields, "{}", theirs.name);
        }
    }

    #[test]
    fn both_tables_have_the_same_requests() {
        for (ours, theirs) in [
            (VERSION, sys::VERSION),
            (GEM_CLOSE, sys::GEM_CLOSE),
            (GET_CAP, sys::GET_CAP),
            (PRIME_HANDLE_TO_FD, sys::PRIME_HANDLE_TO_FD),
            (PRIME_FD_TO_HANDLE, sys::PRIME_FD_TO_HANDLE),
            (CREATE_BO, sys::CREATE_BO),
            (SUBMIT, sys::SUBMIT),
            (PREP_BO, sys::PREP_BO),
            (FINI_BO, sys::FINI_BO),
        ] {
            assert_eq!(ours, RequestNumber(theirs));
        }
        for (ours, theirs) in [
            (DMA_BUF_SYNC, sys::DMA_BUF_SYNC),
            (DMA_BUF_SET_NAME_B, sys::DMA_BUF_SET_NAME),
            (DMA_BUF_EXPORT_SYNC_FILE, sys::EXPORT_SYNC_FILE),
            (DMA_BUF_IMPORT_SYNC_FILE, sys::IMPORT_SYNC_FILE),
            (SYNC_IOC_MERGE, sys::SYNC_MERGE),
            (SYNC_IOC_FILE_INFO, sys::SYNC_FILE_INFO),
            (SW_SYNC_CREATE_FENCE, sys::SW_SYNC_CREATE_FENCE),
            (SW_SYNC_INC, sys::SW_SYNC_INC),
        ] {
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn request_numbers_carry_the_size_of_their_structure() {
        for (request, size) in [
            (VERSION, size_of::<Version>()),
            (GEM_CLOSE, size_of::<GemClose>()),
            (GET_CAP, size_of::<GetCap>()),
            (GEM_FLINK, size_of::<GemFlink>()),
            (GEM_OPEN, size_of::<GemOpen>()),
            (PRIME_HANDLE_TO_FD, size_of::<PrimeHandle>()),
            (PRIME_FD_TO_HANDLE, size_of::<PrimeHandle>()),
            (CREATE_BO, size_of::<CreateBo>()),
            (SUBMIT, size_of::<Submit>()),
            (PREP_BO, size_of::<PrepBo>()),
            (FINI_BO, size_of::<FiniBo>()),
        ] {
            assert_eq!(request.size(), size, "{request:x?}");
            assert_eq!(request.letter(), DRM_IOCTL_BASE);
        }
        for (request, size) in [
            (DMA_BUF_SYNC, size_of::<u64>()),
            (DMA_BUF_EXPORT_SYNC_FILE, size_of::<DmaBufSyncFile>()),
            (DMA_BUF_IMPORT_SYNC_FILE, size_of::<DmaBufSyncFile>()),
            (SYNC_IOC_MERGE, size_of::<SyncMerge>()),
            (SYNC_IOC_FILE_INFO, size_of::<SyncFileInfo>()),
            (SYNC_IOC_SET_DEADLINE, size_of::<SyncSetDeadline>()),
            (SW_SYNC_CREATE_FENCE, size_of::<SwSyncCreateFence>()),
            (SW_SYNC_INC, size_of::<u32>()),
        ] {
            assert_eq!(RequestNumber(request).size(), size, "{request:x}");
        }
    }
}
