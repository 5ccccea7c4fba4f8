// SPDX-License-Identifier: MIT OR Apache-2.0
//! What threads share: addresses of ggml's objects, and locks.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic: at worst a count is then off.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An object that ggml knows by its address and that lives for ever. It is not
/// accessed through this type.
#[derive(Debug)]
pub(crate) struct GgmlPtr<T>(NonNull<T>);

// Not derived: an address can be copied even if the object cannot.
impl<T> Clone for GgmlPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for GgmlPtr<T> {}

impl<T> GgmlPtr<T> {
    /// Stores `address`; `None` if it is null.
    pub(crate) fn new(address: *mut T) -> Option<Self> {
        NonNull::new(address).map(Self)
    }

    /// Takes an object of ours, which is never freed.
    pub(crate) fn leaked<O: ?Sized>(object: Box<O>) -> Self {
        Self(NonNull::from(Box::leak(object)).cast())
    }

    pub(crate) fn get(self) -> *mut T {
        self.0.as_ptr()
    }
}

// SAFETY: only the address is shared; what it points at is not accessed
// through this type.
unsafe impl<T> Send for GgmlPtr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for GgmlPtr<T> {}
