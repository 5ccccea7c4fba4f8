// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ggml calls us.

use std::ffi::CStr;

/// Name of the registry object, which also begins the lines of the log.
pub(crate) const NAME: &CStr = c"ROCKET";

/// Name of the device, and of its buffer type and backends. The software model
/// has another, so that no table of a benchmark passes for a board's.
pub(crate) fn name_of(is_model: bool) -> &'static CStr {
    if is_model {
        c"ROCKET-MODEL0"
    } else {
        c"ROCKET0"
    }
}
