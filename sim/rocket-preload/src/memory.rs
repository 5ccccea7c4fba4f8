// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads memory of the program at an address that may be invalid.

use rocket_uapi::read_own_memory;

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
