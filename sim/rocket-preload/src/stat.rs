// SPDX-License-Identifier: MIT OR Apache-2.0
//! stat and its family: the node is a character device, whatever it is made
//! of.

use std::ffi::CStr;

use libc::{AT_EMPTY_PATH, AT_FDCWD, c_char, c_int, c_uint, stat as Stat, statx as Statx};
use npu_wire::path::{DEVICE_MAJOR, DEVICE_MINOR};

use crate::device;
use crate::guard::look;
use crate::next::next;
use crate::target::{PathTarget, ShadowPath, is_device, node_shadow, target};

/// Type and permissions of the node.
const NODE_MODE: u32 = libc::S_IFCHR | 0o660;

/// Makes what stat said of a stand-in the node's.
///
/// # Safety
/// `out` is valid for writes, or null.
unsafe fn make_node(out: *mut Stat) {
    // SAFETY: see above.
    let Some(out) = (unsafe { out.as_mut() }) else {
        return;
    };
    out.st_mode = NODE_MODE;
    out.st_rdev = libc::makedev(DEVICE_MAJOR, DEVICE_MINOR);
    out.st_nlink = 1;
    out.st_size = 0;
    out.st_blocks = 0;
}

/// The file whose stat is asked for.
enum Asked {
    /// The node's; of this stand-in, if there is one.
    Node(Option<ShadowPath>),
    Shadow(ShadowPath),
    Other,
}

impl Asked {
    fn by_path(directory: c_int, path: *const c_char) -> Self {
        match target(directory, path) {
            // The node itself tells best what it is.
            PathTarget::Node if look(false, device::is_shown_by_system) => Self::Other,
            PathTarget::Node => Self::Node(look(None, node_shadow)),
            PathTarget::Shadow(shadow) => Self::Shadow(shadow),
            PathTarget::SwSync | PathTarget::Other => Self::Other,
        }
    }

    fn by_descriptor(fd: c_int) -> Self {
        if look(false, || is_device(fd)) {
            Self::Node(look(None, node_shadow))
        } else {
            Self::Other
        }
    }

    /// By a path, or by the descriptor where the path is empty and may be.
    ///
    /// # Safety
    /// None but that of reading a C string that the kernel would read.
    fn by_either(directory: c_int, path: *const c_char, flags: c_int) -> Self {
        if flags & AT_EMPTY_PATH != 0 {
            let mut first = [0; 1];
            let empty = path.is_null()
                || look(None, || {
                    crate::memory::read_text(path.expose_provenance(), &mut first).map(<[u8]>::len)
                }) == Some(0);
            if empty {
                return Self::by_descriptor(directory);
            }
        }
        Self::by_path(directory, path)
    }

    /// What to ask the next library about instead, if anything.
    fn stand_in(&self) -> Option<&CStr> {
        match self {
            Self::Node(Some(shadow)) | Self::Shadow(shadow) => Some(shadow.as_c_str()),
            Self::Node(None) | Self::Other => None,
        }
    }

    fn is_node(&self) -> bool {
        matches!(self, Self::Node(_))
    }
}

/// Declares stat by path, with what comes before the path in old names.
macro_rules! stat_path {
    ($($name:ident($($before:ident: $type:ty),*);)*) => {$(
        /// See stat(2).
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($before: $type,)* path: *const c_char, out: *mut Stat) -> c_int {
            let asked = Asked::by_path(AT_FDCWD, path);
            let path = asked.stand_in().map_or(path, CStr::as_ptr);
            // SAFETY: the function of that name, with what the program gave it
            // or the C string of a path of ours.
            let result = unsafe {
                next!($name: fn($($type,)* *const c_char, *mut Stat) -> c_int; $($before,)* path, out)
            };
            if result == 0 && asked.is_node() {
                // SAFETY: the C library has just written there.
                unsafe { make_node(out) };
            }
            result
        }
    )*};
}

stat_path! {
    stat();
    stat64();
    lstat();
    lstat64();
    __xstat(version: c_int);
    __xstat64(version: c_int);
    __lxstat(version: c_int);
    __lxstat64(version: c_int);
}

/// Declares stat by descriptor, with what comes before it in old names.
macro_rules! stat_descriptor {
    ($($name:ident($($before:ident: $type:ty),*);)*) => {$(
        /// See fstat(2).
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($before: $type,)* fd: c_int, out: *mut Stat) -> c_int {
            // SAFETY: the function of that name, as the program called it.
            let result = unsafe {
                next!($name: fn($($type,)* c_int, *mut Stat) -> c_int; $($before,)* fd, out)
            };
            if result == 0 && look(false, || is_device(fd)) {
                // SAFETY: the C library has just written there.
                unsafe { make_node(out) };
            }
            result
        }
    )*};
}

stat_descriptor! {
    fstat();
    fstat64();
    __fxstat(version: c_int);
    __fxstat64(version: c_int);
}

/// Declares stat in a directory, with what comes before it in old names.
macro_rules! stat_in_directory {
    ($($name:ident($($before:ident: $type:ty),*);)*) => {$(
        /// See fstatat(2).
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($before: $type,)* directory: c_int, path: *const c_char, out: *mut Stat, flags: c_int,
        ) -> c_int {
            let asked = Asked::by_either(directory, path, flags);
            let path = asked.stand_in().map_or(path, CStr::as_ptr);
            // SAFETY: the function of that name, with what the program gave it
            // or the C string of a path of ours.
            let result = unsafe {
                next!($name: fn($($type,)* c_int, *const c_char, *mut Stat, c_int) -> c_int;
                    $($before,)* directory, path, out, flags)
            };
            if result == 0 && asked.is_node() {
                // SAFETY: the C library has just written there.
                unsafe { make_node(out) };
            }
            result
        }
    )*};
}

stat_in_directory! {
    fstatat();
    fstatat64();
    __fxstatat(version: c_int);
    __fxstatat64(version: c_int);
}

/// See statx(2).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn statx(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    out: *mut Statx,
) -> c_int {
    let asked = Asked::by_either(directory, path, flags);
    let path = asked.stand_in().map_or(path, CStr::as_ptr);
    // SAFETY: the function of that name, with what the program gave it or the
    // C string of a path of ours.
    let result = unsafe {
        next!(statx: fn(c_int, *const c_char, c_int, c_uint, *mut Statx) -> c_int;
            directory, path, flags, mask, out)
    };
    if result == 0 && asked.is_node() {
        // SAFETY: the C library has just written there.
        if let Some(out) = unsafe { out.as_mut() } {
            // Sixteen bits of type and permissions.
            out.stx_mode = NODE_MODE as u16;
            out.stx_rdev_major = DEVICE_MAJOR;
            out.stx_rdev_minor = DEVICE_MINOR;
            out.stx_nlink = 1;
            out.stx_size = 0;
            out.stx_blocks = 0;
        }
    }
    result
}
