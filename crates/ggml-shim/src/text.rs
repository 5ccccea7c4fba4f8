// SPDX-License-Identifier: MIT OR Apache-2.0
//! Strings of ggml.

use std::ffi::{CStr, c_char};

/// Copies a string; null counts as an empty one.
///
/// # Safety
/// `pointer` is null or a NUL-terminated string that nobody changes meanwhile.
pub(crate) unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: not null, hence a string by the caller's promise.
    let string = unsafe { CStr::from_ptr(pointer) };
    string.to_string_lossy().into_owned()
}
