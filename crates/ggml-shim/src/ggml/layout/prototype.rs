// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls functions of ggml by their prototypes: the types of a function's arguments determine what
//! it is given, so that no call can give it less.

use std::ffi::c_void;
use std::mem::size_of;
use std::ptr::NonNull;

use crate::ggml::abi::{DeviceProps, Tensor};
use crate::ggml::symbols::as_function;

/// Functions with one to four arguments.
pub(super) type F1<A, R> = unsafe extern "C" fn(A) -> R;
pub(super) type F2<A, B, R> = unsafe extern "C" fn(A, B) -> R;
pub(super) type F3<A, B, C, R> = unsafe extern "C" fn(A, B, C) -> R;
pub(super) type F4<A, B, C, D, R> = unsafe extern "C" fn(A, B, C, D) -> R;

/// Bytes of [`Given::room`]: much more than any struct that a function writes, even if a later
/// version adds fields.
pub(super) const ROOM: usize = 4096;

// Eight times its size today: of later versions only the beginning is known.
const _: () = assert!(size_of::<DeviceProps>() <= ROOM / 8);

/// Memory for the arguments of functions. It is not freed while a function runs.
#[derive(Clone, Copy)]
pub(super) struct Given {
    /// An object of ggml.
    pub(super) object: *mut c_void,
    pub(super) tensor: *mut Tensor,
    /// [`ROOM`] bytes that may be read and written, all of them 0 at first.
    pub(super) room: *mut c_void,
}

/// The type of an argument.
pub(super) trait Argument {
    fn of(given: Given) -> Self;
}

/// An object of ggml.
#[repr(transparent)]
pub(super) struct Object(*mut c_void);

impl Argument for Object {
    fn of(given: Given) -> Self {
        Self(given.object)
    }
}

impl Argument for *mut Tensor {
    fn of(given: Given) -> Self {
        given.tensor
    }
}

/// Zeros that the function may read and write: an empty text, the memory of a host, a graph without
/// nodes, or the place of a result.
#[repr(transparent)]
pub(super) struct Zeros(*mut c_void);

impl Argument for Zeros {
    fn of(given: Given) -> Self {
        Self(given.room)
    }
}

/// An offset, an index or a number of bytes, always `N`.
#[repr(transparent)]
pub(super) struct Number<const N: usize>(usize);

impl<const N: usize> Argument for Number<N> {
    fn of(_: Given) -> Self {
        Self(N)
    }
}

/// A byte value, always 0.
impl Argument for u8 {
    fn of(_: Given) -> Self {
        0
    }
}

pub(super) trait Prototype {
    /// Calls `function`.
    ///
    /// # Safety
    /// `function` is of this type, and is sound to call with such arguments.
    unsafe fn call(function: NonNull<c_void>, given: Given);
}

macro_rules! prototype {
    ($alias:ident: $($argument:ident)+) => {
        impl<$($argument: Argument,)+ R> Prototype for $alias<$($argument,)+ R> {
            unsafe fn call(function: NonNull<c_void>, given: Given) {
                // SAFETY: the function is of this type, by the caller's promise.
                let function = unsafe { as_function::<Self>(function) };
                // SAFETY: the caller's promise.
                unsafe { function($($argument::of(given)),+) };
            }
        }
    };
}

prototype!(F1: A);
prototype!(F2: A B);
prototype!(F3: A B C);
prototype!(F4: A B C D);
