// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a request number says, and what comes with it.

use zerocopy::{FromBytes, IntoBytes};

use super::abi::{CREATE_BO, CreateBo, GEM_CLOSE, GemClose, PRIME_FD_TO_HANDLE, PrimeHandle};

/// Bytes of the argument, by the request number (asm-generic/ioctl.h).
#[must_use]
pub const fn arg_len(request: u32) -> usize {
    (request >> 16) as usize & ARG_LEN_MAX
}

/// Most bytes of an argument that a request number can say.
pub const ARG_LEN_MAX: usize = 0x3fff;

/// Whether the kernel writes the argument back, by the request number
/// (`_IOC_READ`: the client reads).
#[must_use]
pub const fn writes_arg(request: u32) -> bool {
    request >> 31 == 1
}

/// The letter of a request, which says whose it is.
#[must_use]
pub const fn letter(request: u32) -> u32 {
    request >> 8 & 0xff
}

/// Whether a request is this one: by letter and number, as DRM tells them
/// apart. Its size says only how much of the structure the client knows.
#[must_use]
pub const fn is_call(request: u32, known: u32) -> bool {
    const LETTER_AND_NUMBER: u32 = 0xffff;
    (request ^ known) & LETTER_AND_NUMBER == 0
}

/// What an ioctl that was done well has changed in its file's table of handles.
///
/// A caller that records handles has to let one such ioctl pass at a time
/// ([`HandleChange::can_come_of`]): a number that one thread gives back may
/// belong to another one at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleChange {
    /// CREATE_BO gave the handle of a new object.
    Created(CreateBo),
    /// GEM_CLOSE took this handle back.
    Closed(u32),
    /// PRIME_FD_TO_HANDLE gave this handle, which the file may have had before.
    Imported(u32),
}

impl HandleChange {
    /// By the request and its argument as the driver left it.
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

    /// Whether a request is one that gives a handle, or takes one back.
    #[must_use]
    pub fn can_come_of(request: u32) -> bool {
        Self::of(request, &[]).is_some()
    }
}

/// A structure of which a client has sent as much as it knows; the rest is
/// zeroes, as for the kernel.
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
    use super::super::abi::{FINI_BO, PREP_BO};
    use super::*;

    #[test]
    fn a_request_of_another_size_is_the_same_call() {
        let of_4_bytes = FINI_BO ^ (8 | 4) << 16;
        assert_eq!((arg_len(FINI_BO), arg_len(of_4_bytes)), (8, 4));
        assert!(is_call(FINI_BO, of_4_bytes));
        assert!(!is_call(FINI_BO, PREP_BO));
        let of_another_letter = FINI_BO ^ 1 << 8;
        assert!(!is_call(of_another_letter, FINI_BO));
    }

    #[test]
    fn what_a_client_does_not_know_is_zeroes() {
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
