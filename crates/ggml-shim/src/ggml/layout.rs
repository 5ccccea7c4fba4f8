// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of callbacks whose layout changed between ggml versions.
//!
//! ggml numbers its backend interface with `GGML_BACKEND_API_VERSION`, but the number alone does
//! not identify the layout: 0.10 inserted two slots in the middle of two tables and kept number 2.
//! The functions that the loaded ggml exports identify it:
//!
//! | ggml | API | recognised by | here |
//! |---|---|---|---|
//! | before 0.9.1 | 1 | its version | refused |
//! | 0.9.1 to 0.9.11 | 2 | neither of the two below | [`TableLayout::V0_9_1`] |
//! | 0.10 to 0.25 | 2 | `ggml_backend_tensor_set_2d` | [`TableLayout::V0_10`] |
//! | 0.26 on | 3 | `ggml_backend_buft_alloc_buffer_n` | [`TableLayout::V0_26`] |
//!
//! The version must not be newer than the functions suggest: a later ggml that drops such a
//! function would otherwise be taken for an old one. The reverse occurs, in builds between two
//! versions. Objects whose fields did not change, such as tensors, are in [`crate::ggml::abi`];
//! positions in the tables are in `callback_tables`. If a table changes once more without a sign, a
//! trial shows it ([`trial`]).

mod callback_tables;
mod prototype;
mod slot;
mod trial;

use std::ffi::CStr;

pub(crate) use callback_tables::{
    AllocBuffer, BackendCallbacks, BufferCallbacks, TableLayout, free_backend, hook_alloc,
    hook_host_ptr, stream,
};

use crate::ggml::load_error::{LoadError, version_number};
use crate::ggml::symbols::SymbolScope;

impl TableLayout {
    /// Recognises the layout of the ggml of `version` that exports these functions.
    pub(crate) fn detect(
        exports: impl Fn(&CStr) -> bool,
        version: &str,
    ) -> Result<Self, LoadError> {
        let alloc_buffer_n = exports(c"ggml_backend_buft_alloc_buffer_n");
        let tensor_set_2d = exports(c"ggml_backend_tensor_set_2d");
        // The first version that may export these functions, and the first that may not.
        let (layout, first, next) = match (alloc_buffer_n, tensor_set_2d) {
            (true, true) => return Ok(Self::V0_26),
            // The version may still be that of the release before.
            (false, true) => (Self::V0_10, (0, 9, 1), (0, 26, 0)),
            (false, false) => (Self::V0_9_1, (0, 9, 1), (0, 10, 0)),
            (true, false) => return Err(LoadError::UnknownLayout(version.to_owned())),
        };
        match version_number(version) {
            Some(number) if number >= next => Err(LoadError::UnknownLayout(version.to_owned())),
            Some(number) if number >= first => Ok(layout),
            // The version of a build that somebody named differently.
            None if layout == Self::V0_10 => Ok(layout),
            _ => Err(LoadError::TooOld(version.to_owned())),
        }
    }

    /// Tries the layout on the ggml in `place`.
    pub(crate) fn check(self, place: &SymbolScope, version: &str) -> Result<(), LoadError> {
        // SAFETY: the addresses of ggml's exported functions.
        match unsafe { trial::refuted(self.two_d(), |name| place.symbol(name)) } {
            None => Ok(()),
            Some(function) => {
                let function = function.to_string_lossy().into_owned();
                Err(LoadError::OtherTables(version.to_owned(), function))
            }
        }
    }

    /// `GGML_BACKEND_API_VERSION` of hosts with this layout.
    pub(crate) fn api_version(self) -> i32 {
        match self {
            Self::V0_9_1 | Self::V0_10 => 2,
            Self::V0_26 => 3,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ffi::{c_char, c_int, c_void};
    use std::ptr;

    use super::*;
    use crate::ggml::abi::{Backend, Buffer, Device, Graph, Tensor};

    #[test]
    fn layouts_are_told_apart_by_the_exported_functions() {
        // Versions and exported functions of released binaries.
        let [old, unknown] = [Err("older than 0.9.1"), Err("unknown backend interface")];
        for (version, alloc_buffer_n, tensor_set_2d, expected) in [
            ("0.9.1", false, false, Ok(TableLayout::V0_9_1)),
            ("0.9.4", false, false, Ok(TableLayout::V0_9_1)),
            ("0.9.11", false, false, Ok(TableLayout::V0_9_1)),
            ("0.10.0", false, true, Ok(TableLayout::V0_10)),
            ("0.25.3", false, true, Ok(TableLayout::V0_10)),
            ("0.26.0", true, true, Ok(TableLayout::V0_26)),
            ("0.27.0", true, true, Ok(TableLayout::V0_26)),
            ("1.0.0", true, true, Ok(TableLayout::V0_26)),
            // Between two versions: the functions come before the number.
            ("0.9.11", false, true, Ok(TableLayout::V0_10)),
            ("0.25.3", true, true, Ok(TableLayout::V0_26)),
            // None of them.
            ("0.9.0", false, false, old),
            ("0.0.6431", false, false, old),
            ("of unknown version", false, false, old),
            ("0.10.0", false, false, unknown),
            ("0.26.0", false, true, unknown),
            ("7.1", false, true, unknown),
            ("0.26.0", true, false, unknown),
        ] {
            let exports = |name: &CStr| match name.to_bytes() {
                b"ggml_backend_tensor_set_2d" => tensor_set_2d,
                _ => alloc_buffer_n,
            };
            let detected = TableLayout::detect(exports, version);
            match (detected.map_err(|error| error.to_string()), expected) {
                (Err(line), Err(why)) => {
                    assert!(line.contains(version) && line.contains(why), "{line}");
                }
                (detected, expected) => assert_eq!(detected.ok(), expected.ok(), "{version}"),
            }
        }
    }

    #[test]
    fn hooks_take_the_place_of_what_a_buffer_had_in_each_layout() {
        unsafe extern "C" fn free(_: *mut Buffer) {}
        unsafe extern "C" fn init(_: *mut Buffer, _: *mut Tensor) -> c_int {
            0
        }
        unsafe extern "C" fn memset(_: *mut Buffer, _: *mut Tensor, _: u8, _: usize, _: usize) {}
        unsafe extern "C" fn set(
            _: *mut Buffer,
            _: *mut Tensor,
            _: *const c_void,
            _: usize,
            _: usize,
        ) {
        }
        unsafe extern "C" fn clear(_: *mut Buffer, _: u8) {}
        let hooks = BufferCallbacks {
            free_buffer: Some(free),
            init_tensor: Some(init),
            memset_tensor: Some(memset),
            set_tensor: Some(set),
            clear: Some(clear),
        };
        // In the order of their words.
        let addresses = [
            free as *mut c_void,
            init as *mut c_void,
            memset as *mut c_void,
            set as *mut c_void,
            clear as *mut c_void,
        ];
        // Words of the callbacks that are replaced, and of those that copy.
        for (layout, replaced, removed) in [
            (TableLayout::V0_9_1, [0, 2, 3, 4, 7], 6..=6),
            (TableLayout::V0_10, [0, 2, 3, 4, 9], 6..=8),
            (TableLayout::V0_26, [0, 2, 3, 4, 9], 6..=8),
        ] {
            let mut buffer = trial::MARKS.map(|mark| mark as *mut c_void);
            let hook = |buffer: &mut [*mut c_void], callbacks| {
                // SAFETY: a buffer of this layout and more words, which nobody else knows.
                unsafe { layout.hook(ptr::from_mut(buffer).cast(), callbacks) }
            };
            let mut unhooked = buffer;
            unhooked[removed].fill(ptr::null_mut());
            let mut hooked = unhooked;
            for (word, address) in replaced.into_iter().zip(addresses) {
                hooked[word] = address;
            }
            let originals = hook(&mut buffer, hooks);
            assert_eq!(buffer, hooked, "{layout:?}");
            let back = hook(&mut buffer, originals);
            assert_eq!(buffer, unhooked, "{layout:?}");
            hook(&mut buffer, back);
            assert_eq!(buffer, hooked, "{layout:?}");
            // A callback may be missing.
            hook(&mut buffer, BufferCallbacks::default());
            assert!(replaced.iter().all(|word| buffer[*word].is_null()));
        }
    }

    #[test]
    fn a_backend_has_its_callbacks_where_each_layout_wants_them() {
        unsafe extern "C" fn name(_: *mut Backend) -> *const c_char {
            ptr::null()
        }
        unsafe extern "C" fn free(_: *mut Backend) {}
        unsafe extern "C" fn compute(_: *mut Backend, _: *mut Graph) -> c_int {
            0
        }
        let callbacks = BackendCallbacks {
            guid: &[7; 16],
            name,
            free,
            graph_compute: compute,
        };
        let device = ptr::without_provenance_mut::<Device>(0x1000);
        for (layout, words) in [
            (TableLayout::V0_9_1, [0, 1, 2, 11, 15]),
            (TableLayout::V0_10, [0, 1, 2, 13, 17]),
            (TableLayout::V0_26, [0, 1, 2, 13, 17]),
        ] {
            let backend = layout.new_backend(device, &callbacks);
            // SAFETY: it begins with so many words, 17 and those of strided copies.
            let object = unsafe { backend.cast::<[*mut c_void; 19]>().read() };
            let mut expected = [ptr::null_mut(); 19];
            let guid = ptr::from_ref(callbacks.guid).cast_mut().cast();
            let values = [
                guid,
                name as *mut c_void,
                free as *mut c_void,
                compute as *mut c_void,
                device.cast(),
            ];
            for (word, value) in words.into_iter().zip(values) {
                expected[word] = value;
            }
            assert_eq!(object, expected, "{layout:?}");
            // SAFETY: made above, and not used again.
            unsafe { free_backend(backend) };
        }
    }
}
