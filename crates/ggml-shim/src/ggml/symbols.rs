// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the functions of the ggml that loaded this library.
//!
//! Nothing of ggml is linked: its SONAME differs between distributions, and many hosts load it with
//! RTLD_LOCAL, so that neither DT_NEEDED nor plain undefined symbols would find the copy that is
//! running. Instead the global scope is searched first, and then each loaded library whose file
//! name begins with `libggml`. If none of them has ggml, all other loaded objects are searched: a
//! Python module may carry ggml. All functions of libggml-base come from one place. If the process
//! has two copies of ggml, this library cannot know which of them loaded it. Buffers of one must
//! not reach the other, so it refuses to serve.

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem;
use std::ptr::{self, NonNull};

/// Finds the function `$name`. The type of the variable or field for it is that of ggml's
/// declaration, in ggml.h, ggml-backend.h, ggml-cpu.h or ggml-impl.h. These declarations are the
/// same from 0.9.1 to 0.27.
macro_rules! function {
    ($place:expr, $name:literal) => {
        $place.symbol($name).map(|address| {
            // SAFETY: the exported function of this name, of the type above.
            unsafe { $crate::ggml::symbols::as_function(address) }
        })
    };
}
pub(crate) use function;

/// The function at `address`.
///
/// # Safety
/// A function of type `F` is there, as long as this library is loaded.
pub(crate) unsafe fn as_function<F: Copy>(address: NonNull<c_void>) -> F {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
    // SAFETY: `F` is a type of functions, by the caller's promise, and these have this size.
    unsafe { mem::transmute_copy(&address) }
}

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

    /// The global scope and each loaded library whose file name begins with `libggml`; all other
    /// loaded objects too, if ggml is in none of these.
    pub(crate) fn candidates() -> Vec<Self> {
        let (ggml, others): (Vec<_>, Vec<_>) =
            loaded_objects().into_iter().partition(|path| is_ggml(path));
        let mut places = vec![Self(libc::RTLD_DEFAULT)];
        places.extend(ggml.iter().filter_map(|path| Self::open(path)));
        if !places.iter().any(|place| place.symbol(MARKER).is_some()) {
            places.extend(others.iter().filter_map(|path| Self::open(path)));
        }
        places
    }

    /// The scope of a loaded object.
    fn open(path: &CStr) -> Option<Self> {
        // SAFETY: the path is NUL-terminated; with RTLD_NOLOAD nothing is loaded and no code runs.
        // The handle is never closed, so what it resolves stays mapped.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        (!handle.is_null()).then_some(Self(handle))
    }

    /// Address of `name` in this scope.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is RTLD_DEFAULT or came from dlopen and was never
        // closed; the name is NUL-terminated.
        NonNull::new(unsafe { libc::dlsym(self.0, name.as_ptr()) })
    }
}

/// Calls `visit` with the description of the program and of each loaded library.
pub(crate) fn each_loaded<F: FnMut(&libc::dl_phdr_info)>(mut visit: F) {
    unsafe extern "C" fn each<F: FnMut(&libc::dl_phdr_info)>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        visit: *mut c_void,
    ) -> c_int {
        // SAFETY: the closure below, which nobody else uses while dl_iterate_phdr runs.
        let visit = unsafe { &mut *visit.cast::<F>() };
        // SAFETY: dl_iterate_phdr passes a valid description for the duration of the call.
        visit(unsafe { &*info });
        0
    }
    // SAFETY: the callback matches the prototype, and gets the address of a closure that outlives
    // the call.
    unsafe { libc::dl_iterate_phdr(Some(each::<F>), ptr::from_mut(&mut visit).cast()) };
}

/// Whether a loaded object belongs to ggml, by the name of its file.
fn is_ggml(path: &CStr) -> bool {
    let bytes = path.to_bytes();
    let file = bytes.rsplit(|byte| *byte == b'/').next().unwrap_or(bytes);
    file.starts_with(b"libggml")
}

/// Paths of the loaded objects but the program itself, whose symbols are in the global scope.
fn loaded_objects() -> Vec<CString> {
    let mut found: Vec<CString> = Vec::new();
    each_loaded(|info| {
        if info.dlpi_name.is_null() {
            return;
        }
        // SAFETY: not null, hence NUL-terminated and valid during the call.
        let path = unsafe { CStr::from_ptr(info.dlpi_name) };
        if !path.is_empty() {
            found.push(path.to_owned());
        }
    });
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
    fn existing_symbols_are_found() {
        let global = &SymbolScope::candidates()[0];
        assert!(global.symbol(c"dlsym").is_some());
        assert!(global.symbol(c"no_such_function_anywhere").is_none());
    }
}
