// SPDX-License-Identifier: MIT OR Apache-2.0
//! stat and related functions: they report the node as a character device.

use libc::{AT_EMPTY_PATH, AT_FDCWD, c_char, c_int, c_uint, stat as Stat, statx as Statx};
use npu_wire::path::{DEVICE_MAJOR, DEVICE_MINOR};

use crate::device;
use crate::guard::look;
use crate::next::hook;
use crate::target::{PathTarget, ShadowPath, is_device, node_shadow, read_text, target};

const NODE_MODE: u32 = libc::S_IFCHR | 0o660;

/// Changes the result of stat for a stand-in file to that of the node.
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

/// The file that a call of stat asks for.
#[derive(Default)]
struct Asked {
    /// Its path in the shadow directory, if there is one, for the next library.
    stand_in: Option<ShadowPath>,
    is_node: bool,
}

impl Asked {
    fn node() -> Self {
        Self {
            stand_in: look(None, node_shadow),
            is_node: true,
        }
    }

    fn by_path(directory: c_int, path: *const c_char) -> Self {
        match target(directory, path) {
            // A real node needs no replacement.
            PathTarget::Node if look(false, device::has_real_device) => Self::default(),
            PathTarget::Node => Self::node(),
            PathTarget::Shadow(shadow) => Self {
                stand_in: Some(shadow),
                is_node: false,
            },
            PathTarget::SwSync | PathTarget::Other => Self::default(),
        }
    }

    /// By the path, or by the descriptor if the path is empty and the flags allow that.
    ///
    /// # Safety
    /// Only that the kernel would read this C string.
    fn by_either(directory: c_int, path: *const c_char, flags: c_int) -> Self {
        let mut first = [0; 1];
        let mut is_empty = || {
            path.is_null()
                || read_text(path.expose_provenance(), &mut first).is_some_and(<[u8]>::is_empty)
        };
        if flags & AT_EMPTY_PATH == 0 || !look(false, &mut is_empty) {
            Self::by_path(directory, path)
        } else if look(false, || is_device(directory)) {
            Self::node()
        } else {
            Self::default()
        }
    }

    /// The path for the next library, instead of `path`.
    fn path(&self, path: *const c_char) -> *const c_char {
        self.stand_in.as_ref().map_or(path, ShadowPath::as_ptr)
    }
}

/// Calls the next stat, with the stand-in's path if there is one.
///
/// # Safety
/// `next` writes `out`.
unsafe fn stat_by(
    asked: &Asked,
    path: *const c_char,
    out: *mut Stat,
    next: impl FnOnce(*const c_char) -> c_int,
) -> c_int {
    let result = next(asked.path(path));
    if result == 0 && asked.is_node {
        // SAFETY: the C library has just written there.
        unsafe { make_node(out) };
    }
    result
}

hook! {
    // See stat(2).
    fn(path: *const c_char, out: *mut Stat) -> c_int, |next| {
        let asked = Asked::by_path(AT_FDCWD, path);
        // SAFETY: the program's arguments.
        unsafe { stat_by(&asked, path, out, |path| next(path, out)) }
    }
    stat(..);
    stat64(..);
    lstat(..);
    lstat64(..);
    __xstat(version: c_int, ..);
    __xstat64(version: c_int, ..);
    __lxstat(version: c_int, ..);
    __lxstat64(version: c_int, ..);
}

hook! {
    // See fstat(2).
    fn(fd: c_int, out: *mut Stat) -> c_int, |next| {
        let result = next(fd, out);
        if result == 0 && look(false, || is_device(fd)) {
            // SAFETY: the C library has just written there.
            unsafe { make_node(out) };
        }
        result
    }
    fstat(..);
    fstat64(..);
    __fxstat(version: c_int, ..);
    __fxstat64(version: c_int, ..);
}

hook! {
    // See fstatat(2).
    fn(directory: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int, |next| {
        let asked = Asked::by_either(directory, path, flags);
        let next = |path| next(directory, path, out, flags);
        // SAFETY: the program's arguments.
        unsafe { stat_by(&asked, path, out, next) }
    }
    fstatat(..);
    fstatat64(..);
    __fxstatat(version: c_int, ..);
    __fxstatat64(version: c_int, ..);
}

hook! {
    // See statx(2).
    fn(
        directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut Statx
    ) -> c_int, |next| {
        let asked = Asked::by_either(directory, path, flags);
        let result = next(directory, asked.path(path), flags, mask, out);
        // SAFETY: the C library has just written there.
        if result == 0 && asked.is_node && let Some(out) = unsafe { out.as_mut() } {
            // Type and permissions have 16 bits.
            out.stx_mode = NODE_MODE as u16;
            out.stx_rdev_major = DEVICE_MAJOR;
            out.stx_rdev_minor = DEVICE_MINOR;
            out.stx_nlink = 1;
            out.stx_size = 0;
            out.stx_blocks = 0;
        }
        result
    }
    statx(..);
}
