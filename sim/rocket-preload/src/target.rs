// SPDX-License-Identifier: MIT OR Apache-2.0
//! Meaning of the program's paths, which are read from addresses that may be invalid.

use std::ffi::CStr;
use std::io::Write;
use std::os::fd::BorrowedFd;

use libc::{c_char, c_int};
use npu_wire::path::{NODE, NODE_NAME, PathKind, path_kind, plain};
use rocket_uapi::read_own_memory;
use rustix::fs::FileType;

use crate::device;

/// Longest path that can belong to the device, with its terminator, bytes. Paths in the
/// shadow directory are far shorter.
pub(crate) const PATH_BYTES: usize = 512;

/// Target of a call with a path.
#[expect(
    clippy::large_enum_variant,
    reason = "lives for one call, and nothing is to be allocated"
)]
pub(crate) enum PathTarget {
    Node,
    Shadow(ShadowPath),
    /// The kernel's sw_sync file, for fences that a program signals itself.
    SwSync,
    /// Anything else: the next library handles it.
    Other,
}

/// A path in the shadow directory, as a C string.
pub(crate) struct ShadowPath {
    bytes: [u8; PATH_BYTES],
}

impl ShadowPath {
    /// The path in the shadow directory for an absolute path; `None` without a server, or
    /// if it is too long.
    pub(crate) fn of(path: &[u8]) -> Option<Self> {
        let root = device::shadow_root()?;
        let mut bytes = [0; PATH_BYTES];
        let end = root.len() + path.len();
        if end >= bytes.len() {
            return None;
        }
        bytes[..root.len()].copy_from_slice(root);
        bytes[root.len()..end].copy_from_slice(path);
        Some(Self { bytes })
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }

    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.as_c_str().as_ptr()
    }
}

/// Finds the target of `path`, which may be relative to the directory `dirfd`. Does not
/// change `errno`.
pub(crate) fn target(dirfd: c_int, path: *const c_char) -> PathTarget {
    crate::guard::look(PathTarget::Other, || find(dirfd, path))
}

fn find(dirfd: c_int, path: *const c_char) -> PathTarget {
    let mut text = [0; PATH_BYTES];
    let Some(path) = read_text(path.expose_provenance(), &mut text) else {
        return PathTarget::Other;
    };
    let mut absolute = [0; PATH_BYTES];
    let len = if path.first() == Some(&b'/') {
        plain(path, &mut absolute, is_directory)
    } else if path.ends_with(NODE_NAME) {
        // Only the node needs this: other files of the shadow directory are found through a
        // descriptor of a directory there.
        let mut joined = [0; PATH_BYTES];
        join(dirfd, path, &mut joined).and_then(|joined| plain(joined, &mut absolute, is_directory))
    } else {
        None
    };
    let Some(path) = len.and_then(|len| absolute.get(..len)) else {
        return PathTarget::Other;
    };
    match path_kind(path) {
        PathKind::Node => PathTarget::Node,
        PathKind::Shadow => ShadowPath::of(path).map_or(PathTarget::Other, PathTarget::Shadow),
        // With a real device the system's own sw_sync is used, if it has one.
        PathKind::SwSync if device::shadow_root().is_some_and(|root| !root.is_empty()) => {
            PathTarget::SwSync
        }
        PathKind::SwSync | PathKind::Elsewhere => PathTarget::Other,
    }
}

/// Whether a path is a directory and no link, so that a following `..` is its parent.
fn is_directory(path: &[u8]) -> bool {
    let found = match path_kind(path) {
        PathKind::Node => return false,
        PathKind::Shadow => match ShadowPath::of(path) {
            Some(shadow) => rustix::fs::lstat(shadow.as_c_str()),
            None => return false,
        },
        PathKind::SwSync | PathKind::Elsewhere => rustix::fs::lstat(path),
    };
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory)
}

/// Joins the directory and the relative path. A directory in the shadow directory counts as
/// the directory that it shadows.
fn join<'a>(dirfd: c_int, path: &[u8], out: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut link = [0; PATH_BYTES];
    let directory = directory(dirfd, &mut link)?;
    let directory = match device::known_shadow_root() {
        Some(root) => directory.strip_prefix(root).unwrap_or(directory),
        None => directory,
    };
    let len = directory.len() + 1 + path.len();
    out.get_mut(..directory.len())?.copy_from_slice(directory);
    *out.get_mut(directory.len())? = b'/';
    out.get_mut(directory.len() + 1..len)?.copy_from_slice(path);
    out.get(..len)
}

/// The path of a directory, from its descriptor.
pub(crate) fn directory(dirfd: c_int, out: &mut [u8]) -> Option<&[u8]> {
    // Room for the longest number.
    let mut name = [0; 32];
    let link: &[u8] = if dirfd == libc::AT_FDCWD {
        b"/proc/self/cwd\0"
    } else {
        let number = u32::try_from(dirfd).ok()?;
        write!(&mut name[..], "/proc/self/fd/{number}\0").ok()?;
        &name
    };
    let link = CStr::from_bytes_until_nul(link).ok()?;
    let len = rustix::fs::readlinkat_raw(rustix::fs::CWD, link, &mut *out).ok()?;
    out.get(..len)
}

pub(crate) fn node_shadow() -> Option<ShadowPath> {
    ShadowPath::of(NODE)
}

/// Whether a descriptor of the program is one of the device. Does not change `errno`.
pub(crate) fn is_device(fd: c_int) -> bool {
    if fd < 0 {
        return false;
    }
    // SAFETY: only the kernel uses the number, and returns an error if it is not open.
    npu_wire::is_device(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Smallest page size of Linux, bytes. A read within one page is either all mapped or not
/// at all.
const PAGE_BYTES: usize = 4096;

/// Reads a C string into `out`, which must hold its terminator too; `None` if the string is
/// longer, or cannot be read.
pub(crate) fn read_text(addr: usize, out: &mut [u8]) -> Option<&[u8]> {
    let mut len = 0;
    while len < out.len() {
        let at = addr.checked_add(len)?;
        let now = (PAGE_BYTES - at % PAGE_BYTES).min(out.len() - len);
        let part = &mut out[len..len + now];
        read_own_memory(at as u64, part).ok()?;
        if let Some(end) = part.iter().position(|&byte| byte == 0) {
            return Some(&out[..len + end]);
        }
        len += now;
    }
    None
}
