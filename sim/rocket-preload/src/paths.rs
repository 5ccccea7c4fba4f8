// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other functions with a path: access, directories, links.

use std::ffi::CStr;

use libc::{AT_FDCWD, DIR, c_char, c_int, c_void, dirent64, size_t, ssize_t};
use npu_wire::path::{NODE, NODE_NAME};

use crate::device;
use crate::guard::look;
use crate::next::hook;
use crate::target::{
    PATH_BYTES, PathTarget, ShadowPath, directory as directory_of, is_device, node_shadow,
    read_text, target,
};

/// The path in the shadow directory that replaces `path`, if there is one.
fn shadow(directory: c_int, path: *const c_char) -> Option<ShadowPath> {
    match target(directory, path) {
        PathTarget::Node => look(None, node_shadow),
        PathTarget::Shadow(shadow) => Some(shadow),
        PathTarget::SwSync | PathTarget::Other => None,
    }
}

/// Calls `next` with the path in the shadow directory, or with `path` if there is none.
fn in_shadow<T>(directory: c_int, path: *const c_char, next: impl FnOnce(*const c_char) -> T) -> T {
    let shadow = shadow(directory, path);
    next(shadow.as_ref().map_or(path, ShadowPath::as_ptr))
}

hook! {
    // The C library's functions, with the path in the shadow directory if there is one.
    fn(path: *const c_char) -> c_int, |next| { in_shadow(AT_FDCWD, path, next) }
    access(.., mode: c_int);
    eaccess(.., mode: c_int);
    euidaccess(.., mode: c_int);
    // `filter` and `compare` are functions of the program, and are passed on.
    scandir(.., names: *mut c_void, filter: *mut c_void, compare: *mut c_void);
    scandir64(.., names: *mut c_void, filter: *mut c_void, compare: *mut c_void);
}

hook! {
    // See opendir(3).
    fn(path: *const c_char) -> *mut DIR, |next| { in_shadow(AT_FDCWD, path, next) }
    opendir(..);
}

hook! {
    // See getxattr(2). `ls -l` calls it, and prints an error if there is no file.
    fn(path: *const c_char) -> ssize_t, |next| { in_shadow(AT_FDCWD, path, next) }
    getxattr(.., name: *const c_char, value: *mut c_void, room: size_t);
    lgetxattr(.., name: *const c_char, value: *mut c_void, room: size_t);
    listxattr(.., names: *mut c_char, room: size_t);
    llistxattr(.., names: *mut c_char, room: size_t);
}

hook! {
    // See faccessat(2).
    fn(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, |next| {
        in_shadow(directory, path, |path| next(directory, path, mode, flags))
    }
    faccessat(..);
}

/// Whether an open directory is the node's directory in the shadow directory.
fn is_of_node(directory: *mut DIR) -> bool {
    look(false, || {
        // SAFETY: the program has just read this directory.
        let fd = unsafe { libc::dirfd(directory) };
        let Some(node) = node_shadow() else {
            return false;
        };
        let mut link = [0; PATH_BYTES];
        let node = node.as_c_str().to_bytes();
        let rest = directory_of(fd, &mut link).and_then(|found| node.strip_prefix(found));
        rest.and_then(|rest| rest.strip_prefix(b"/")) == Some(NODE_NAME)
    })
}

hook! {
    // See readdir(3), which also returns the types of files.
    fn(directory: *mut DIR) -> *mut dirent64, |next| {
        let found = next(directory);
        // SAFETY: null, or an entry that belongs to the directory.
        if let Some(entry) = unsafe { found.as_mut() }
            && entry.d_type == libc::DT_REG
            // SAFETY: a C string within the entry.
            && unsafe { CStr::from_ptr(entry.d_name.as_ptr()) }.to_bytes() == NODE_NAME
            && is_of_node(directory)
        {
            entry.d_type = libc::DT_CHR;
        }
        found
    }
    // On 64-bit Linux their structures are the same.
    readdir(..);
    readdir64(..);
}

/// Whether a path is the link in /proc to a descriptor of the device.
fn is_link_to_device(path: *const c_char) -> bool {
    look(false, || {
        // Room for the longest number.
        let mut text = [0; 32];
        let Some(path) = read_text(path.expose_provenance(), &mut text) else {
            return false;
        };
        path.strip_prefix(b"/proc/self/fd/")
            .and_then(|number| std::str::from_utf8(number).ok()?.parse().ok())
            .is_some_and(is_device)
    })
}

/// Puts the node's path into a buffer that readlink has just filled, as the kernel does for
/// a descriptor of the node.
///
/// # Safety
/// `out` is valid for writes of `room` bytes.
unsafe fn put_node(out: *mut c_char, room: size_t) -> ssize_t {
    let len = NODE.len().min(room);
    // SAFETY: `len` is at most `room`.
    unsafe { std::ptr::copy_nonoverlapping(NODE.as_ptr().cast(), out, len) };
    // A few bytes.
    len.cast_signed()
}

/// Calls the next readlink, and corrects the result for a descriptor of the device.
///
/// # Safety
/// `out` has room for what `next` writes.
unsafe fn read_link(
    directory: c_int,
    path: *const c_char,
    out: *mut c_char,
    room: size_t,
    next: impl FnOnce(*const c_char) -> ssize_t,
) -> ssize_t {
    let result = in_shadow(directory, path, next);
    if result > 0 && is_link_to_device(path) {
        // SAFETY: the C library has just written there.
        return unsafe { put_node(out, room) };
    }
    result
}

hook! {
    // See readlink(2).
    fn(path: *const c_char, out: *mut c_char, room: size_t) -> ssize_t, |next| {
        // SAFETY: the program's arguments.
        unsafe { read_link(AT_FDCWD, path, out, room, |path| next(path, out, room)) }
    }
    readlink(..);
    // The fortified form.
    __readlink_chk(.., size: size_t);
}

hook! {
    // See readlinkat(2).
    fn(directory: c_int, path: *const c_char, out: *mut c_char, room: size_t) -> ssize_t, |next| {
        let next = |path| next(directory, path, out, room);
        // SAFETY: the program's arguments.
        unsafe { read_link(directory, path, out, room, next) }
    }
    readlinkat(..);
    __readlinkat_chk(.., size: size_t);
}

/// Removes the path of the shadow directory from the front of a C string.
///
/// # Safety
/// `text` is null or a C string that may be written.
unsafe fn strip_root(text: *mut c_char) {
    let Some(root) = device::known_shadow_root() else {
        return;
    };
    if text.is_null() {
        return;
    }
    // SAFETY: a C string.
    let len = unsafe { libc::strlen(text) };
    // SAFETY: its bytes.
    let bytes = unsafe { std::slice::from_raw_parts_mut(text.cast::<u8>(), len + 1) };
    if bytes.starts_with(root) && bytes.get(root.len()) == Some(&b'/') {
        bytes.copy_within(root.len().., 0);
    }
}

hook! {
    // See realpath(3).
    fn(path: *const c_char) -> *mut c_char, |next| {
        let shadow = shadow(AT_FDCWD, path);
        let result = next(shadow.as_ref().map_or(path, ShadowPath::as_ptr));
        if shadow.is_some() {
            // SAFETY: the C library has just written this string.
            unsafe { strip_root(result) };
        }
        result
    }
    realpath(.., out: *mut c_char);
    __realpath_chk(.., out: *mut c_char, size: size_t);
    canonicalize_file_name(..);
}

hook! {
    // See glob(3), which opens directories with internal calls. A pattern whose beginning
    // leads to the shadow directory is searched there.
    fn(
        pattern: *const c_char, flags: c_int, error: *mut c_void, found: *mut libc::glob_t
    ) -> c_int, |next| {
        let shadow = shadow(AT_FDCWD, pattern);
        let asked = shadow.as_ref().map_or(pattern, ShadowPath::as_ptr);
        let result = next(asked, flags, error, found);
        if shadow.is_some() && result == 0 {
            // SAFETY: the C library has just filled it.
            unsafe { strip_roots(found, flags) };
        }
        result
    }
    // On 64-bit Linux their structures are the same.
    glob(..);
    glob64(..);
}

/// Removes the path of the shadow directory from the paths that glob found.
///
/// # Safety
/// `found` is a result of glob with these flags.
unsafe fn strip_roots(found: *const libc::glob_t, flags: c_int) {
    // SAFETY: the caller promises it.
    let found = unsafe { &*found };
    let first = if flags & libc::GLOB_DOOFFS == 0 {
        0
    } else {
        found.gl_offs
    };
    for index in 0..found.gl_pathc {
        // SAFETY: glob returns `gl_pathc` paths after the offset.
        let place = unsafe { found.gl_pathv.add(first + index) };
        // SAFETY: as above.
        let path = unsafe { place.read() };
        // SAFETY: a C string that belongs to the result.
        unsafe { strip_root(path) };
    }
}
