// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program's log.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io::Write as _;

use crate::ggml::symbols::{SymbolScope, function};

/// Name of our registry object in ggml, which also begins the lines of the log.
pub(crate) const NAME: &CStr = c"ROCKET";

/// Severities of `ggml_log_internal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogLevel {
    /// `GGML_LOG_LEVEL_INFO`
    Info = 2,
    /// `GGML_LOG_LEVEL_WARN`
    Warn = 3,
    /// `GGML_LOG_LEVEL_ERROR`
    Error = 4,
}

/// `void ggml_log_internal(enum ggml_log_level, const char * format, ...)`.
type LogInternal = unsafe extern "C" fn(c_int, *const c_char, ...);

/// The program's log; stderr if it has none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Logger(Option<LogInternal>);

impl Logger {
    /// Finds `ggml_log_internal`. It is the same in every version from 0.9.1 on, so that even the
    /// log of a ggml that is refused has the reason.
    pub(crate) fn new(place: Option<&SymbolScope>) -> Self {
        Self(place.and_then(|place| function!(place, c"ggml_log_internal")))
    }

    /// Writes one line, after the name of this library's registry object.
    pub(crate) fn write(self, level: LogLevel, message: &str) {
        // An inner NUL would end the line early.
        let name = NAME.to_string_lossy();
        let line = format!("{name}: {}\n", message.replace('\0', " "));
        match (self.0, CString::new(&*line)) {
            (Some(log), Ok(line)) => {
                // SAFETY: `void ggml_log_internal(enum ggml_log_level, const
                // char * format, ...)`; the format takes one string, which is
                // NUL-terminated and lives until the call returns.
                unsafe { log(level as c_int, c"%s".as_ptr(), line.as_ptr()) };
            }
            // If stderr is closed too, the line is lost.
            _ => drop(std::io::stderr().write_all(line.as_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_host_stderr_will_do() {
        Logger::new(None).write(LogLevel::Info, "a line with a \0 in it");
    }
}
