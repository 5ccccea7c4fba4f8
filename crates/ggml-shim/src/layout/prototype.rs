// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls functions of ggml by their prototypes: the types of a function's arguments and result
//! determine what it is given, so that no call can give it less.

use std::ffi::{c_int, c_void};
use std::mem::{self, size_of};
use std::ptr::NonNull;

use crate::abi::{DeviceProps, Tensor};

/// Functions with one to four arguments.
pub(super) type F1<A, R> = unsafe extern "C" fn(A) -> R;
pub(super) type F2<A, B, R> = unsafe extern "C" fn(A, B) -> R;
pub(super) type F3<A, B, C, R> = unsafe extern "C" fn(A, B, C) -> R;
pub(super) type F4<A, B, C, D, R> = unsafe extern "C" fn(A, B, C, D) -> R;

/// Bytes of [`Given::room`]: much more than any struct that a function writes, even if a later
/// version adds fields.
pub(super) const ROOM: usize = 4096;

/// Memory for the arguments of functions. It is not freed while a function runs.
#[derive(Clone, Copy)]
pub(super) struct Given {
    /// An object of ggml.
    pub(super) object: *mut c_void,
    /// A tensor.
    pub(super) tensor: *mut Tensor,
    /// [`ROOM`] bytes that may be read and written, all of them 0 at first.
    pub(super) room: *mut c_void,
}

/// The type of an argument.
pub(super) trait Argument {
    fn of(given: Given) -> Self;
}

#[repr(transparent)]
pub(super) struct Object(*mut c_void);

/// A tensor.
#[repr(transparent)]
pub(super) struct TensorArg(*mut Tensor);

/// Zeros that the function may read and write: an empty text, the memory of a host, a graph without
/// nodes, or the place of a result.
#[repr(transparent)]
pub(super) struct Zeros(*mut c_void);

/// An offset or an index, always 0.
#[repr(transparent)]
pub(super) struct First(usize);

/// A number of bytes, always 1.
#[repr(transparent)]
pub(super) struct ByteCount(usize);

impl Argument for Object {
    fn of(given: Given) -> Self {
        Self(given.object)
    }
}

impl Argument for TensorArg {
    fn of(given: Given) -> Self {
        Self(given.tensor)
    }
}

impl Argument for Zeros {
    fn of(given: Given) -> Self {
        Self(given.room)
    }
}

impl Argument for First {
    fn of(_: Given) -> Self {
        Self(0)
    }
}

impl Argument for ByteCount {
    fn of(_: Given) -> Self {
        Self(1)
    }
}

/// A byte value, always 0.
impl Argument for u8 {
    fn of(_: Given) -> Self {
        0
    }
}

// Eight times its size today: of later versions only the beginning is known.
const _: () = assert!(size_of::<DeviceProps>() <= ROOM / 8);

/// The type of a result.
pub(super) trait Returned {
    /// The result as a word of an object.
    fn word(self) -> usize;
}

impl Returned for () {
    fn word(self) -> usize {
        0
    }
}

impl Returned for bool {
    fn word(self) -> usize {
        self.into()
    }
}

impl Returned for c_int {
    fn word(self) -> usize {
        self as usize
    }
}

impl Returned for usize {
    fn word(self) -> usize {
        self
    }
}

/// Any pointer.
impl Returned for *mut c_void {
    fn word(self) -> usize {
        self.addr()
    }
}

pub(super) trait Prototype {
    /// Calls `function`; returns its result as a word.
    ///
    /// # Safety
    /// `function` is of this type, and is sound to call with such arguments.
    unsafe fn call(function: NonNull<c_void>, given: Given) -> usize;
}

macro_rules! prototype {
    ($alias:ident: $($argument:ident)+) => {
        impl<$($argument: Argument,)+ R: Returned> Prototype for $alias<$($argument,)+ R> {
            unsafe fn call(function: NonNull<c_void>, given: Given) -> usize {
                // SAFETY: a function pointer has the size of a data pointer on every Linux
                // target; the function is of this type, by the caller's promise.
                let function = unsafe { mem::transmute::<NonNull<c_void>, Self>(function) };
                // SAFETY: the caller's promise.
                unsafe { function($($argument::of(given)),+) }.word()
            }
        }
    };
}

prototype!(F1: A);
prototype!(F2: A B);
prototype!(F3: A B C);
prototype!(F4: A B C D);
