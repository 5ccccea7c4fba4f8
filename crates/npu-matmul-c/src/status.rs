// SPDX-License-Identifier: MIT OR Apache-2.0
//! How calls end: a status for the caller, a sentence for its user. Panics end here.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{self, AssertUnwindSafe};

/// How a call ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RocketNpuStatus {
    /// It did its work.
    Ok = 0,
    /// An argument makes no sense; nothing was done.
    Invalid = 1,
    /// There is no such device, or it cannot be opened.
    NoDevice = 2,
    /// The device or its driver failed, or memory is short.
    Failed = 3,
    /// An error of this library: please report it.
    Internal = 4,
}

/// The most products of any 8-bit integers whose sum fits into 32 bits.
pub(crate) const I8_DEPTH_MAX: usize = i32::MAX as usize / (128 * 128);

/// Why a call did not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{0} is null")]
    Null(&'static str),
    #[error("{0} is not aligned to its elements")]
    Misaligned(&'static str),
    #[error("{0} is larger than memory can be")]
    TooLarge(&'static str),
    #[error(
        "sums of {k} products of 8-bit integers can leave 32 bits, those of {I8_DEPTH_MAX} cannot: cut K \
         and add the parts up"
    )]
    TooDeep { k: usize },
    #[error("the name of the device is no UTF-8")]
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
            Self::Null(_)
            | Self::Misaligned(_)
            | Self::TooLarge(_)
            | Self::TooDeep { .. }
            | Self::DeviceName => RocketNpuStatus::Invalid,
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
    /// The sentence about the latest call of this thread that failed.
    static LATEST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function of the interface.
pub(crate) fn call(body: impl FnOnce() -> Result<(), CallError>) -> RocketNpuStatus {
    // What a panic leaves half done is the engine's own, which guards it by locks.
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

/// The same for those that free: nobody can be told of a panic.
pub(crate) fn free<T>(handle: Option<Box<T>>) {
    let _ = panic::catch_unwind(AssertUnwindSafe(|| drop(handle)));
}

fn remember(message: &str) {
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    // In a thread that ends there is nobody to ask.
    let _ = LATEST.try_with(|latest| latest.replace(message));
}

/// Why the latest call of this thread that failed did so: a sentence, empty if none
/// has. It stays valid until the next call of this thread fails.
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
