// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of calls: a status for the caller and an error text for users. Panics are caught here.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{self, AssertUnwindSafe};

/// Result of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RocketNpuStatus {
    /// The call succeeded.
    Ok = 0,
    /// An argument is invalid; nothing was done.
    Invalid = 1,
    /// The device does not exist or cannot be opened.
    NoDevice = 2,
    /// The device or its driver failed, or memory ran out.
    Failed = 3,
    /// A bug in this library; please report it.
    Internal = 4,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{0} is null")]
    Null(&'static str),
    #[error("{0} is not aligned to its elements")]
    Misaligned(&'static str),
    #[error("{0} is larger than the address space")]
    TooLarge(&'static str),
    #[error("the device name is not UTF-8")]
    DeviceName,
    #[error(transparent)]
    Open(#[from] npu_matmul::OpenNpuError),
    #[error("cannot open the device: {0}")]
    Files(#[source] rocket_uapi::Error),
    #[error(transparent)]
    Engine(#[from] npu_matmul::Error),
}

impl CallError {
    fn status(&self) -> RocketNpuStatus {
        use npu_matmul::Error;
        match self {
            Self::Null(_) | Self::Misaligned(_) | Self::TooLarge(_) | Self::DeviceName => {
                RocketNpuStatus::Invalid
            }
            Self::Open(_) | Self::Files(_) => RocketNpuStatus::NoDevice,
            Self::Engine(
                Error::Plan(_)
                | Error::OperandLength { .. }
                | Error::AttentionShape { .. }
                | Error::WrongWeights { .. }
                | Error::WrongOutput { .. }
                | Error::TooDeep { .. },
            ) => RocketNpuStatus::Invalid,
            Self::Engine(_) => RocketNpuStatus::Failed,
        }
    }
}

thread_local! {
    /// The text of this thread's latest error.
    static LATEST: RefCell<CString> = RefCell::default();
}

/// Runs the body of an interface function.
pub(crate) fn call(body: impl FnOnce() -> Result<(), CallError>) -> RocketNpuStatus {
    // A panic can leave only the engine's state half changed; locks guard that.
    match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => RocketNpuStatus::Ok,
        Ok(Err(error)) => {
            remember(&error.to_string());
            error.status()
        }
        Err(_) => {
            remember("internal error; please report it");
            RocketNpuStatus::Internal
        }
    }
}

/// As [`call`] for functions that free, which return no status: ignores panics.
pub(crate) fn free<T>(handle: Option<Box<T>>) {
    let _ = panic::catch_unwind(AssertUnwindSafe(|| drop(handle)));
}

fn remember(message: &str) {
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    // Fails only while the thread ends; nobody can ask then.
    let _ = LATEST.try_with(|latest| latest.replace(message));
}

/// Text of this thread's latest error; empty if no call has failed. The string is valid until the
/// next call of this thread fails.
#[unsafe(no_mangle)]
pub extern "C" fn rocket_npu_error() -> *const c_char {
    let latest = LATEST.try_with(|latest| latest.borrow().as_ptr());
    latest.unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn a_panic_is_an_internal_error() {
        let status = call(|| panic!("a test of panics"));
        assert_eq!(status, RocketNpuStatus::Internal);
        assert_eq!(call(|| Err(CallError::Null("a"))), RocketNpuStatus::Invalid);
        // SAFETY: a NUL-terminated string that this thread keeps.
        let told = unsafe { CStr::from_ptr(rocket_npu_error()) };
        assert_eq!(told, c"a is null");
    }
}
