// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts the caller's pointers to references and slices. Null or misaligned pointers and
//! impossible sizes are errors; the rest is the caller's promise.

use std::slice;

use crate::status::CallError;

/// The object behind a handle, or an error if it is null.
///
/// # Safety
/// `handle` is null, or an object of this library that is not freed as long as the result is used.
pub(crate) unsafe fn object<'a, T>(
    handle: *const T,
    name: &'static str,
) -> Result<&'a T, CallError> {
    check(handle, name)?;
    // SAFETY: not null and aligned, and an object by the caller's promise; objects of
    // this library are never changed.
    Ok(unsafe { &*handle })
}

/// Sets a handle of the caller to null and returns a reference to it.
///
/// # Safety
/// `place` is null, or may be written as long as the result is used.
pub(crate) unsafe fn place<'a, T>(
    place: *mut *mut T,
    name: &'static str,
) -> Result<&'a mut *mut T, CallError> {
    check(place, name)?;
    // SAFETY: not null and aligned, so that it may be written by the caller's promise.
    unsafe { place.write(std::ptr::null_mut()) };
    // SAFETY: the same, and just initialised.
    Ok(unsafe { &mut *place })
}

/// Checks that `pointer` is not null and is aligned for `T`.
fn check<T>(pointer: *const T, name: &'static str) -> Result<(), CallError> {
    if pointer.is_null() {
        Err(CallError::Null(name))
    } else if !pointer.is_aligned() {
        Err(CallError::Misaligned(name))
    } else {
        Ok(())
    }
}

/// The elements of an array to read.
///
/// # Safety
/// `array` is null, or has `len` elements if `len` is a possible length. Nobody changes them as
/// long as the result is used.
pub(crate) unsafe fn array<'a, T>(
    array: *const T,
    len: Option<usize>,
    name: &'static str,
) -> Result<&'a [T], CallError> {
    let len = checked_len::<T>(len, name)?;
    check(array, name)?;
    // SAFETY: not null and aligned, so it has these elements by the caller's promise; a slice can
    // have this size.
    Ok(unsafe { slice::from_raw_parts(array, len) })
}

/// The elements of an array to write.
///
/// # Safety
/// `array` is null, or has `len` initialised elements if `len` is a possible length. Nobody else
/// accesses them as long as the result is used.
pub(crate) unsafe fn array_mut<'a, T>(
    array: *mut T,
    len: Option<usize>,
    name: &'static str,
) -> Result<&'a mut [T], CallError> {
    let len = checked_len::<T>(len, name)?;
    check(array, name)?;
    // SAFETY: as above, and nobody else accesses it by the caller's promise.
    Ok(unsafe { slice::from_raw_parts_mut(array, len) })
}

/// The number of elements, or an error if a slice cannot have so many.
fn checked_len<T>(len: Option<usize>, name: &'static str) -> Result<usize, CallError> {
    let most = isize::MAX as usize / size_of::<T>().max(1);
    len.filter(|&len| len <= most)
        .ok_or(CallError::TooLarge(name))
}
