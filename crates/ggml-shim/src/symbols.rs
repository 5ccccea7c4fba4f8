// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the functions of the ggml that loaded this library.
//!
//! Nothing of ggml is linked: its SONAME differs between distributions, and many hosts load it with
//! RTLD_LOCAL, so that neither DT_NEEDED nor plain undefined symbols would find the copy that is
//! running. Instead the global scope is searched first, and then each loaded library whose file
//! name begins with `libggml`. All functions of libggml-base come from one place. If the process
//! has two copies of ggml, this library cannot know which of them loaded it. Buffers of one must
//! not reach the other, so it refuses to serve.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{self, NonNull};

/// Finds the function `$name` of type `$type`.
macro_rules! function {
    ($place:expr, $name:literal, $type:ty) => {
        $place.symbol($name).map(|address| {
            // SAFETY: the address is that of the exported function of this
            // name, whose declaration in ggml is `$type`; a function pointer
            // has the size of a data pointer on every Linux target.
            unsafe { std::mem::transmute::<std::ptr::NonNull<std::ffi::c_void>, $type>(address) }
        })
    };
}
pub(crate) use function;

/// A scope in which symbols are looked up.
#[derive(Debug)]
pub(crate) struct SymbolScope(*mut c_void);

/// A function that every libggml-base exports.
const MARKER: &CStr = c"ggml_backend_buffer_init";

impl SymbolScope {
    /// Finds the ggml of this process; the first one, if it has several.
    pub(crate) fn find() -> Option<Self> {
        Self::candidates()
            .into_iter()
            .find(|place| place.symbol(MARKER).is_some())
    }

    /// Number of copies of ggml in this process.
    pub(crate) fn copies() -> usize {
        let places = Self::candidates();
        let mut found: Vec<_> = places.iter().filter_map(|p| p.symbol(MARKER)).collect();
        found.sort_unstable();
        found.dedup();
        found.len()
    }

    /// The global scope, then each loaded library whose file name begins with `libggml`.
    pub(crate) fn candidates() -> Vec<Self> {
        let mut places = vec![Self(libc::RTLD_DEFAULT)];
        for path in loaded_ggml_libraries() {
            // SAFETY: the path is NUL-terminated; with RTLD_NOLOAD nothing is
            // loaded and no code runs. The handle is never closed, so what it
            // resolves stays mapped.
            let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW) };
            if !handle.is_null() {
                places.push(Self(handle));
            }
        }
        places
    }

    /// Address of `name` in this scope.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is RTLD_DEFAULT or came from dlopen and was never
        // closed; the name is NUL-terminated.
        NonNull::new(unsafe { libc::dlsym(self.0, name.as_ptr()) })
    }
}

/// Paths of the loaded libraries that belong to ggml.
fn loaded_ggml_libraries() -> Vec<CString> {
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid description for the duration
        // of the call; its name is null or a NUL-terminated string.
        let name = unsafe { (*info).dlpi_name };
        if name.is_null() {
            return 0;
        }
        // SAFETY: not null, NUL-terminated, valid during the call, as above.
        let path = unsafe { CStr::from_ptr(name) };
        let bytes = path.to_bytes();
        let file = bytes.rsplit(|byte| *byte == b'/').next().unwrap_or(bytes);
        if file.starts_with(b"libggml") {
            // SAFETY: `data` is the vector below, borrowed by nobody else
            // while dl_iterate_phdr runs.
            let found = unsafe { &mut *data.cast::<Vec<CString>>() };
            found.push(path.to_owned());
        }
        0
    }
    let mut found: Vec<CString> = Vec::new();
    // SAFETY: the callback matches the prototype and gets the address of a
    // vector that outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), ptr::from_mut(&mut found).cast()) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_ggml_is_seen() {
        assert!(SymbolScope::find().is_none());
        assert_eq!(SymbolScope::copies(), 0);
    }

    #[test]
    fn what_is_there_is_found() {
        let global = &SymbolScope::candidates()[0];
        assert!(global.symbol(c"dlsym").is_some());
        assert!(global.symbol(c"no_such_function_anywhere").is_none());
    }
}
