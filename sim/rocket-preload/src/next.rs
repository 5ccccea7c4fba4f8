// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions that the program would have called without this library:
//! those of the next one in the order of loading, mostly the C library.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::c_void;

/// A function by its name, looked up once.
pub(crate) struct Next {
    name: &'static CStr,
    function: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            function: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Its address; null if no library behind this one has it.
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.function.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a C string. `RTLD_NEXT` is about this library,
        // which makes the call.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.function.store(found, Ordering::Release);
        found
    }
}

/// Calls the next function of a name with these arguments:
/// `next!(open: fn(*const c_char, c_int, mode_t) -> c_int; path, flags, mode)`.
/// To be used in an unsafe block, under the contract of that function.
macro_rules! next {
    ($name:ident: fn($($type:ty),*) -> $result:ty; $($argument:expr),*) => {{
        static NEXT: $crate::next::Next = $crate::next::Next::new(
            match ::std::ffi::CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => c"",
            },
        );
        let address = NEXT.address();
        if address.is_null() {
            $crate::guard::set_errno(libc::ENOSYS);
            <$result as $crate::next::FailureValue>::FAILED
        } else {
            // The address of a function of this name and type, which the C
            // library's headers give. Variadic ones are called alike.
            let function = ::std::mem::transmute::<
                *mut libc::c_void,
                unsafe extern "C" fn($($type),*) -> $result,
            >(address);
            function($($argument),*)
        }
    }};
}

pub(crate) use next;

/// What a function of C returns when it fails.
pub(crate) trait FailureValue {
    const FAILED: Self;
}

impl FailureValue for libc::c_int {
    const FAILED: Self = -1;
}

impl FailureValue for libc::c_long {
    const FAILED: Self = -1;
}

impl FailureValue for libc::ssize_t {
    const FAILED: Self = -1;
}

impl<T> FailureValue for *mut T {
    const FAILED: Self = ptr::null_mut();
}
