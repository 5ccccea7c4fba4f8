// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registry object: one device, and the functions that ggml's programs request by name.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Once, OnceLock};

use crate::compute::runtime::guard;
use crate::ggml::abi::{AbortCallback, Backend, Device, Feature, Reg, RegInterface, RegObject};
use crate::ggml::cpu::EXTRAS_NAME;
use crate::ggml::cpu_ops::{SetAbort, SetThreads};
use crate::ggml::layout;
use crate::ggml::log::{LogLevel, NAME};
use crate::ggml::shared::GgmlPtr;

/// Creates the registry object, which is never freed.
pub(crate) fn new(api_version: c_int) -> GgmlPtr<Reg> {
    GgmlPtr::leaked(Box::new(RegObject {
        api_version,
        iface: RegInterface {
            get_name: name,
            get_device_count: device_count,
            get_device: device,
            get_proc_address: Some(proc_address),
        },
        context: ptr::null_mut(),
    }))
}

unsafe extern "C" fn name(_reg: *mut Reg) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "C" fn device_count(_reg: *mut Reg) -> usize {
    1
}

unsafe extern "C" fn device(_reg: *mut Reg, index: usize) -> *mut Device {
    guard("get_device", ptr::null_mut(), |runtime| match index {
        0 => runtime.device.get(),
        _ => ptr::null_mut(),
    })
}

unsafe extern "C" fn proc_address(_reg: *mut Reg, name: *const c_char) -> *mut c_void {
    if name.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: not null, and ggml passes a NUL-terminated name.
    let name = unsafe { CStr::from_ptr(name) };
    if name == EXTRAS_NAME {
        warn_of_layers();
    }
    find(name)
}

/// Warns of the cost if this device is that of a model's layers (`-dev`). llama.cpp asks only such
/// a device and the CPU for more buffer types.
fn warn_of_layers() {
    static SAID: Once = Once::new();
    guard("get_proc_address", (), |runtime| {
        SAID.call_once(|| {
            let name = runtime.name.to_string_lossy();
            let line = format!(
                "{name} is selected for the model's layers (-dev {name}): llama.cpp turns flash \
                 attention off unless it is forced (-fa on), since {name} leaves flash attention \
                 of single tokens to the CPU. Remove -dev {name}: the NPU is used without it"
            );
            runtime.log(LogLevel::Warn, &line);
        });
    });
}

/// Returns the address of our function with this name; null if there is none.
fn find(name: &CStr) -> *mut c_void {
    // The types are those that ggml's programs cast the addresses to.
    let set_n_threads: SetThreads = set_n_threads;
    let set_abort_callback: SetAbort = set_abort_callback;
    let get_features: unsafe extern "C" fn(*mut Reg) -> *const Feature = features;
    match name.to_bytes() {
        b"ggml_backend_set_n_threads" => set_n_threads as *mut c_void,
        b"ggml_backend_set_abort_callback" => set_abort_callback as *mut c_void,
        b"ggml_backend_get_features" => get_features as *mut c_void,
        _ => ptr::null_mut(),
    }
}

unsafe extern "C" fn set_n_threads(backend: *mut Backend, count: c_int) {
    guard("set_n_threads", (), |_| {
        // SAFETY: ggml passes a live backend of ours.
        if let Some(stream) = unsafe { layout::stream(backend) } {
            stream.set_threads(count);
        }
    });
}

unsafe extern "C" fn set_abort_callback(
    backend: *mut Backend,
    callback: Option<AbortCallback>,
    data: *mut c_void,
) {
    guard("set_abort_callback", (), |_| {
        // SAFETY: ggml passes a live backend of ours.
        if let Some(stream) = unsafe { layout::stream(backend) } {
            // SAFETY: the program sets the callback for this purpose.
            unsafe { stream.set_abort(callback, data) };
        }
    });
}

unsafe extern "C" fn features(_reg: *mut Reg) -> *const Feature {
    guard("get_features", ptr::null(), |runtime| {
        static FEATURES: OnceLock<GgmlPtr<Feature>> = OnceLock::new();
        let list = FEATURES.get_or_init(|| {
            feature_list([
                (c"DEVICE", runtime.description.clone()),
                (c"PRECISION", text(runtime.config.precision.word())),
                (c"MIN_M", text(&runtime.config.min_m())),
            ])
        });
        list.get().cast_const()
    })
}

/// Makes a list of names and values that programs print about us in their line of system
/// information. It is never freed. An entry without a name ends it.
fn feature_list<const N: usize>(features: [(&'static CStr, CString); N]) -> GgmlPtr<Feature> {
    let feature = |(name, value): (&CStr, CString)| Feature {
        name: name.as_ptr(),
        value: value.into_raw(),
    };
    let end = Feature {
        name: ptr::null(),
        value: ptr::null(),
    };
    let list: Box<[Feature]> = features.into_iter().map(feature).chain([end]).collect();
    GgmlPtr::leaked(list)
}

fn text(value: &str) -> CString {
    CString::new(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_functions_that_there_are_have_addresses() {
        for name in [
            c"ggml_backend_set_n_threads",
            c"ggml_backend_set_abort_callback",
            c"ggml_backend_get_features",
        ] {
            assert!(!find(name).is_null(), "{name:?}");
        }
        for name in [c"ggml_backend_dev_get_extra_bufts", c"", c"ggml"] {
            assert!(find(name).is_null(), "{name:?}");
        }
        // SAFETY: null is refused.
        assert!(unsafe { proc_address(ptr::null_mut(), ptr::null()) }.is_null());
    }

    #[test]
    fn features_end_with_one_that_has_no_name() {
        let list = feature_list([(c"A", text("1")), (c"B", text("x y"))]);
        // SAFETY: two entries and the end, which live for ever like their strings.
        let [a, b, end] = unsafe { &*list.get().cast::<[Feature; 3]>() };
        // SAFETY: as above.
        let seen = unsafe { CStr::from_ptr(b.value) };
        assert_eq!(seen, c"x y");
        assert!(!a.name.is_null());
        assert!(end.name.is_null() && end.value.is_null());
    }
}
