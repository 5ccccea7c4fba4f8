// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading memory of the program at an address that may be wrong.

use rocket_uapi::read_own_memory;

/// Smallest page of any Linux: a read within one is of mapped memory or not.
const PAGE_BYTES: usize = 4096;

/// Reads a C string of at most `out` less its terminator; `None` if it is
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
