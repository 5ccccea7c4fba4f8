// SPDX-License-Identifier: MIT OR Apache-2.0
//! mremap of mappings of the device and of its dma-bufs. The kernel's mappings of them
//! cannot grow (`VM_DONTEXPAND` and `VM_PFNMAP` of Linux, drm_gem_shmem_mmap; mm/mremap.c).
//! Mappings of the memfds that replace them could grow, up to the end of the file and
//! beyond, where an access raises SIGBUS.

use libc::{c_int, c_void, size_t};
use rustix::fs::{Mode, OFlags};

use crate::guard::{look, set_errno};
use crate::next::hook;

/// Mappings of this process, one per line (Linux, Documentation/filesystems/proc.rst).
const MAPPINGS: &str = "/proc/self/maps";
/// End of a mapping's line if it maps an object of the software model, which uses this name
/// for its memfds.
const OBJECT: &[u8] = b"/memfd:rocket-bo (deleted)";
/// Longest line of a mapping of an object, bytes.
const LINE: usize = 160;

hook! {
    // See mremap(2). C declares it variadic; its last argument is in the register of a
    // named one (see `open`).
    fn(
        old: *mut c_void, old_len: size_t, new_len: size_t, flags: c_int, new: *mut c_void
    ) -> *mut c_void, |next| {
        let call = Remapping {
            old: old.addr(),
            old_len,
            new_len,
            flags,
            new: new.addr(),
        };
        if let Some(error) = call.refusal()
            && look(false, || is_object(call.old))
        {
            set_errno(error);
            return libc::MAP_FAILED;
        }
        next(old, old_len, new_len, flags, new)
    }
    mremap(..);
}

#[derive(Clone, Copy)]
struct Remapping {
    old: usize,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: usize,
}

impl Remapping {
    /// The kernel's error if the mapping is of the device; `None` if the kernel grants the
    /// call, or refuses it for any mapping.
    fn refusal(self) -> Option<c_int> {
        let known = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        let page = rustix::param::page_size();
        let pages = |len: usize| len.checked_next_multiple_of(page);
        let (old_len, new_len) = (pages(self.old_len)?, pages(self.new_len)?);
        let has = |flag| self.flags & flag != 0;
        let (old, new) = (self.old, self.new);
        let overlap = || new < old.saturating_add(old_len) && old < new.saturating_add(new_len);
        let is_placed = has(libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP);
        let is_wrong = self.flags & !known != 0
            || !old.is_multiple_of(page)
            || new_len == 0
            || is_placed && !has(libc::MREMAP_MAYMOVE)
            || has(libc::MREMAP_DONTUNMAP) && old_len != new_len
            || has(libc::MREMAP_FIXED) && (!new.is_multiple_of(page) || overlap());
        if is_wrong {
            return None;
        }
        if has(libc::MREMAP_DONTUNMAP) {
            Some(libc::EINVAL)
        } else {
            (new_len > old_len).then_some(libc::EFAULT)
        }
    }
}

/// Whether an address lies in a mapping of an object of the software model. Without /proc
/// the answer is `false`.
fn is_object(address: usize) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(MAPPINGS, flags, Mode::empty()) else {
        return false;
    };
    let mut line = Line::default();
    let mut buffer = [0; 4096];
    loop {
        let read = match rustix::io::read(&file, &mut buffer) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok(0) | Err(_) => return false,
            Ok(read) => read,
        };
        for &byte in buffer.iter().take(read) {
            if byte != b'\n' {
                line.push(byte);
                continue;
            }
            if line.holds(address) {
                return line.text().ends_with(OBJECT);
            }
            line = Line::default();
        }
    }
}

/// The beginning of a line.
struct Line {
    bytes: [u8; LINE],
    /// Length of the whole line, bytes.
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        let bytes = [0; LINE];
        Self { bytes, len: 0 }
    }
}

impl Line {
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
        }
        self.len += 1;
    }

    /// The whole line; empty if it is longer than [`LINE`].
    fn text(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Whether the line's mapping holds an address. The line begins with `START-END `, in
    /// hexadecimal.
    fn holds(&self, address: usize) -> bool {
        let mut numbers = self.bytes.split(|byte| !byte.is_ascii_hexdigit());
        let mut number = || {
            let text = str::from_utf8(numbers.next()?).ok()?;
            usize::from_str_radix(text, 16).ok()
        };
        let (Some(start), Some(end)) = (number(), number()) else {
            return false;
        };
        (start..end).contains(&address)
    }
}
