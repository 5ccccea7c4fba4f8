// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions that the program would call without this library: those of the next
//! library in loading order, usually the C library.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::c_void;

/// A function of the next library, looked up once by its name.
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

    /// Address of the function; null if no later library has it.
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.function.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a C string. `RTLD_NEXT` refers to this library, which makes
        // the call.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.function.store(found, Ordering::Release);
        found
    }
}

/// Replaces functions of the C library that do the same: it exports each name with this
/// body, in which `next` is the replaced function. If their arguments differ, `..` stands
/// for those of the body; the others are passed on.
///
/// ```text
/// hook! {
///     // See open(2).
///     fn(path: *const c_char, flags: c_int) -> c_int, |next| { next(path, flags) }
///     open(.., mode: mode_t);
///     __open_2(..);
/// }
/// ```
macro_rules! hook {
    (
        fn $common:tt -> $result:ty, |$next:ident| $body:block
        $($name:ident($($before:ident: $before_type:ty,)* .. $(, $after:ident: $after_type:ty)*);)+
    ) => {$(
        $crate::next::hook! {
            @one $name
            ($($before: $before_type,)*) $common ($($after: $after_type,)*)
            -> $result, |$next| $body
        }
    )+};
    (
        @one $name:ident
        ($($before:ident: $before_type:ty,)*)
        ($($argument:ident: $type:ty),* $(,)?)
        ($($after:ident: $after_type:ty,)*)
        -> $result:ty, |$next:ident| $body:block
    ) => {
        /// Replaces the C library's function, and handles the device.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($before: $before_type,)* $($argument: $type,)* $($after: $after_type,)*
        ) -> $result {
            let $next = |$($argument: $type),*| -> $result {
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
                    return <$result as $crate::next::FailureValue>::FAILED;
                }
                // SAFETY: the address is of a function with this name and the type in the C
                // library's headers. Variadic functions are called alike.
                let function = unsafe {
                    ::std::mem::transmute::<
                        *mut libc::c_void,
                        unsafe extern "C" fn(
                            $($before_type,)* $($type,)* $($after_type,)*
                        ) -> $result,
                    >(address)
                };
                // SAFETY: the arguments are those of the program, or the body's
                // replacements of the same kind: a C string, memory, or a descriptor to
                // map.
                unsafe { function($($before,)* $($argument,)* $($after,)*) }
            };
            $body
        }
    };
}

pub(crate) use hook;

/// The value that a C function returns on failure.
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
