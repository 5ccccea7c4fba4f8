// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's interface as its headers define it, and the parts of a request number.

use zerocopy::{FromBytes, IntoBytes};

mod abi;

pub use abi::*;

/// Size of the argument in bytes, from the request number (asm-generic/ioctl.h).
#[must_use]
pub const fn arg_len(request: u32) -> usize {
    (request >> 16) as usize & ARG_LEN_MAX
}

/// Largest argument size that a request number can hold, bytes.
pub const ARG_LEN_MAX: usize = 0x3fff;

/// Whether the kernel writes the argument back, from the request number (`_IOC_READ`: the
/// client reads).
#[must_use]
pub const fn writes_arg(request: u32) -> bool {
    request >> 31 == 1
}

/// The letter of a request, which names its subsystem.
#[must_use]
pub const fn letter(request: u32) -> u32 {
    request >> 8 & 0xff
}

/// Whether `request` is the call `known`. Like DRM, this compares letter and number. The
/// size says only how much of the structure the client knows.
#[must_use]
pub const fn is_call(request: u32, known: u32) -> bool {
    const LETTER_AND_NUMBER: u32 = 0xffff;
    (request ^ known) & LETTER_AND_NUMBER == 0
}

/// The change that a successful ioctl made to its file's table of handles.
///
/// A caller that records handles must serialise such ioctls
/// ([`HandleChange::can_come_of`]): a number that one thread closes may belong to another
/// thread at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleChange {
    /// CREATE_BO returned the handle of a new object.
    Created(CreateBo),
    /// GEM_CLOSE closed this handle.
    Closed(u32),
    /// PRIME_FD_TO_HANDLE returned this handle, which the file may already have had.
    Imported(u32),
}

impl HandleChange {
    /// The change, from the request and its argument after the call.
    #[must_use]
    pub fn of(request: u32, arg: &[u8]) -> Option<Self> {
        let is = |known| is_call(request, known);
        if is(CREATE_BO) {
            Some(Self::Created(structure(arg)))
        } else if is(GEM_CLOSE) {
            Some(Self::Closed(structure::<GemClose>(arg).handle))
        } else if is(PRIME_FD_TO_HANDLE) {
            Some(Self::Imported(structure::<PrimeHandle>(arg).handle))
        } else {
            None
        }
    }

    /// Whether a request can create, import or close a handle.
    #[must_use]
    pub fn can_come_of(request: u32) -> bool {
        Self::of(request, &[]).is_some()
    }
}

/// Reads a structure from the bytes that the client sent; the rest is zeroes, as in the
/// kernel.
#[must_use]
pub fn structure<T: FromBytes + IntoBytes>(arg: &[u8]) -> T {
    let mut value = T::new_zeroed();
    let bytes = value.as_mut_bytes();
    let len = arg.len().min(bytes.len());
    bytes[..len].copy_from_slice(&arg[..len]);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_another_size_is_the_same_call() {
        let of_4_bytes = FINI_BO ^ (8 | 4) << 16;
        assert_eq!((arg_len(FINI_BO), arg_len(of_4_bytes)), (8, 4));
        assert!(is_call(FINI_BO, of_4_bytes));
        assert!(!is_call(FINI_BO, PREP_BO));
        let other_letter = FINI_BO ^ 1 << 8;
        assert!(!is_call(other_letter, FINI_BO));
    }

    #[test]
    fn fields_unknown_to_a_client_are_zeros() {
        let bo: CreateBo = structure(&7_u64.to_ne_bytes());
        assert_eq!((bo.size, bo.dma_address), (7, 0));
        let longer: u32 = structure(&[1, 0, 0, 0, 9]);
        assert_eq!(longer, 1);
    }

    #[test]
    fn handles_come_and_go_by_three_requests() {
        let made = CreateBo {
            handle: 7,
            ..CreateBo::default()
        };
        let created = HandleChange::of(CREATE_BO, made.as_bytes());
        assert_eq!(created, Some(HandleChange::Created(made)));
        let arg = [7_u32, 0].as_bytes().to_vec();
        let closed = HandleChange::of(GEM_CLOSE, &arg);
        assert_eq!(closed, Some(HandleChange::Closed(7)));
        let imported = HandleChange::of(PRIME_FD_TO_HANDLE, &arg);
        assert_eq!(imported, Some(HandleChange::Imported(7)));
        assert!(HandleChange::can_come_of(GEM_CLOSE));
        assert!(!HandleChange::can_come_of(PREP_BO));
    }
}
