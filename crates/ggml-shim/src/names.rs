// SPDX-License-Identifier: MIT OR Apache-2.0
//! Our names in ggml.

use std::ffi::CStr;

/// Name of the registry object, which also begins the lines of the log.
pub(crate) const NAME: &CStr = c"ROCKET";

/// Name of the device, and of its buffer type and backends. The software model has another name, so
/// that its benchmark tables do not pass for a board's.
pub(crate) fn name_of(is_model: bool) -> &'static CStr {
    if is_model {
        c"ROCKET-MODEL0"
    } else {
        c"ROCKET0"
    }
}
