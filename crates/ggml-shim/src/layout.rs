// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of callbacks whose layout changed between ggml versions.
//!
//! ggml counts its backend interface with `GGML_BACKEND_API_VERSION`, but the
//! number alone does not tell the layout: 0.10 inserted two slots in the
//! middle of two tables and kept the number 2. The layouts are told apart by
//! which functions the loaded ggml exports:
//!
//! | ggml | API | recognised by | here |
//! |---|---|---|---|
//! | 0.9.1 to 0.9.11 | 2 | neither of the two below | refused |
//! | 0.10 to 0.25 | 2 | `ggml_backend_tensor_set_2d` | refused |
//! | 0.26 on | 3 | `ggml_backend_buft_alloc_buffer_n` | [`api3`] |
//!
//! Another layout is one more module with the same three functions and one
//! more arm below; nothing else depends on it.

pub(crate) mod api3;

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::abi::{Backend, Buffer, BufferType, Device};
use crate::host::{Host, LoadError};

/// A layout of the callback tables that this library speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// ggml 0.26 and later.
    Api3,
}

/// Which of the telling functions the loaded ggml exports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probes {
    /// `ggml_backend_tensor_set_2d`, since 0.10.
    pub(crate) tensor_set_2d: bool,
    /// `ggml_backend_buft_alloc_buffer_n`, since 0.26.
    pub(crate) alloc_buffer_n: bool,
}

impl Layout {
    /// Recognises the layout of a ggml that exports `probes`.
    pub(crate) fn detect(probes: Probes, version: &str) -> Result<Self, LoadError> {
        let speaks = match (probes.alloc_buffer_n, probes.tensor_set_2d) {
            (true, true) => return Ok(Self::Api3),
            (false, true) => "0.10 to 0.25",
            (false, false) => "before 0.10",
            (true, false) => "an unknown line",
        };
        Err(LoadError::Layout {
            version: version.to_owned(),
            speaks,
        })
    }

    /// `GGML_BACKEND_API_VERSION` of hosts with this layout.
    pub(crate) fn api_version(self) -> i32 {
        match self {
            Self::Api3 => api3::API_VERSION,
        }
    }

    /// Whether hosts with this layout mark the nodes of a graph that are to be
    /// computed with [`crate::abi::FLAG_COMPUTE`]. The others belong to a
    /// branch that was not chosen, and may not even be allocated.
    pub(crate) fn marks_computed_nodes(self) -> bool {
        match self {
            Self::Api3 => true,
        }
    }

    /// Makes the buffer type of `device`; it lives for ever.
    pub(crate) fn new_buffer_type(self, device: NonNull<Device>) -> NonNull<BufferType> {
        match self {
            Self::Api3 => api3::new_buffer_type(device),
        }
    }

    /// Makes a backend (what ggml calls a stream) on `device`.
    pub(crate) fn new_backend(self, device: *mut Device) -> *mut Backend {
        match self {
            Self::Api3 => api3::new_backend(device),
        }
    }

    /// Frees what [`Layout::new_backend`] made.
    ///
    /// # Safety
    /// `backend` comes from [`Layout::new_backend`] of the same layout and is
    /// not used again.
    pub(crate) unsafe fn free_backend(self, backend: *mut Backend) {
        match self {
            // SAFETY: the caller's promise is the callee's.
            Self::Api3 => unsafe { api3::free_backend(backend) },
        }
    }

    /// Has the host make a buffer object around `context`.
    pub(crate) fn new_buffer(
        self,
        host: &Host,
        buffer_type: *mut BufferType,
        context: *mut c_void,
        size: usize,
    ) -> *mut Buffer {
        match self {
            Self::Api3 => api3::new_buffer(host, buffer_type, context, size),
        }
    }

    /// The context given to [`Layout::new_buffer`].
    ///
    /// # Safety
    /// `buffer` is a live buffer of a host with this layout.
    pub(crate) unsafe fn buffer_context(self, buffer: *const Buffer) -> *mut c_void {
        match self {
            // SAFETY: the caller's promise is the callee's.
            Self::Api3 => unsafe { api3::buffer_context(buffer) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_told_apart_by_the_exported_functions() {
        let detect = |alloc_buffer_n, tensor_set_2d| {
            Layout::detect(
                Probes {
                    tensor_set_2d,
                    alloc_buffer_n,
                },
                "1.2.3",
            )
        };
        assert_eq!(detect(true, true).unwrap(), Layout::Api3);
        for refused in [(false, true), (false, false), (true, false)] {
            let error = detect(refused.0, refused.1).unwrap_err().to_string();
            assert!(error.contains("1.2.3"), "{error}");
        }
    }
}
