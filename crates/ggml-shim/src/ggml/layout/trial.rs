// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries a layout on the loaded ggml, before anything relies on it.
//!
//! ggml exports functions that only call one callback of an object, or read one of its pointers.
//! Each is given an object whose words are all marks: functions that record which of them was
//! called. If a table has another slot, in an untested version, another mark than the layout
//! predicts is called or returned.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::{self, NonNull};

use super::callback_tables::{backend_words, buffer_words};
use super::prototype::{F1, F2, F3, F4, Given, Number, Object, Prototype, ROOM, Zeros};
use crate::ggml::abi::{DeviceObject, RegObject, Tensor};
use crate::ggml::symbols::as_function;

/// Words of an object of marks: more than any object of ggml has.
const WORDS: usize = 40;

/// A mark. It ignores its arguments, whichever callback ggml takes it for: the ABIs of 64-bit Linux
/// pass them in caller-saved registers.
pub(super) type Mark = unsafe extern "C" fn() -> usize;

thread_local! {
    /// The mark that was called last.
    static CALLED: Cell<Option<usize>> = const { Cell::new(None) };
}

unsafe extern "C" fn mark<const WORD: usize>() -> usize {
    CALLED.set(Some(WORD));
    0
}

macro_rules! marks {
    ($($word:literal)*) => { [$(mark::<$word> as Mark),*] };
}

/// An object in which each word is the mark of its position.
pub(super) static MARKS: [Mark; WORDS] = marks!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19
    20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
);

/// A function of ggml that calls a callback of its object, or returns a pointer of it.
struct Trial {
    name: &'static CStr,
    /// Position of the callback or pointer.
    word: usize,
    /// Calls the function by its prototype; `None` if it returns the pointer.
    call: Option<unsafe fn(NonNull<c_void>, Given)>,
}

/// Offset of a field, in words.
macro_rules! word {
    ($object:ty, $($field:tt)+) => { offset_of!($object, $($field)+) / size_of::<usize>() };
}

fn calls<F: Prototype>(name: &'static CStr, word: usize) -> Trial {
    let call = Some(F::call as _);
    Trial { name, word, call }
}

fn returns(name: &'static CStr, word: usize) -> Trial {
    let call = None;
    Trial { name, word, call }
}

type Pointer = *mut c_void;

/// The trials of a layout with `two_d` slots of strided copies. (The first callback of a buffer,
/// which frees it, is not tried: ggml would free the object too.) The prototypes are those of
/// ggml-backend.h, the same in all versions from 0.9.1 to 0.27.0.
#[rustfmt::skip]
fn trials(two_d: usize) -> Vec<Trial> {
    vec![
        // `struct ggml_backend_buffer_type` begins with these two.
        calls::<F1<Object, Pointer>>(c"ggml_backend_buft_name", 0),
        calls::<F2<Object, Number<1>, Pointer>>(c"ggml_backend_buft_alloc_buffer", 1),
        calls::<F2<Object, *mut Tensor, c_int>>(c"ggml_backend_buffer_init_tensor", buffer_words::INIT_TENSOR),
        calls::<F4<*mut Tensor, u8, Number<0>, Number<1>, ()>>(c"ggml_backend_tensor_memset", buffer_words::MEMSET_TENSOR),
        calls::<F4<*mut Tensor, Zeros, Number<0>, Number<1>, ()>>(c"ggml_backend_tensor_set", buffer_words::SET_TENSOR),
        calls::<F2<Object, u8, ()>>(c"ggml_backend_buffer_clear", buffer_words::CLEAR + two_d),
        returns(c"ggml_backend_buffer_get_type", buffer_words::BUFFER_TYPE + two_d),
        calls::<F1<Object, Pointer>>(c"ggml_backend_name", backend_words::GET_NAME),
        calls::<F1<Object, ()>>(c"ggml_backend_free", backend_words::FREE),
        calls::<F1<Object, ()>>(c"ggml_backend_synchronize", backend_words::SYNCHRONIZE + two_d),
        calls::<F2<Object, Zeros, c_int>>(c"ggml_backend_graph_compute_async", backend_words::GRAPH_COMPUTE + two_d),
        returns(c"ggml_backend_get_device", backend_words::DEVICE + two_d),
        calls::<F1<Object, Pointer>>(c"ggml_backend_dev_name", word!(DeviceObject, iface.get_name)),
        calls::<F1<Object, Pointer>>(c"ggml_backend_dev_description", word!(DeviceObject, iface.get_description)),
        calls::<F3<Object, Zeros, Zeros, ()>>(c"ggml_backend_dev_memory", word!(DeviceObject, iface.get_memory)),
        calls::<F1<Object, c_int>>(c"ggml_backend_dev_type", word!(DeviceObject, iface.get_type)),
        calls::<F2<Object, Zeros, ()>>(c"ggml_backend_dev_get_props", word!(DeviceObject, iface.get_props)),
        calls::<F2<Object, Zeros, Pointer>>(c"ggml_backend_dev_init", word!(DeviceObject, iface.init_backend)),
        calls::<F1<Object, Pointer>>(c"ggml_backend_dev_buffer_type", word!(DeviceObject, iface.get_buffer_type)),
        calls::<F4<Object, Zeros, Number<1>, Number<1>, Pointer>>(c"ggml_backend_dev_buffer_from_host_ptr", word!(DeviceObject, iface.buffer_from_host_ptr)),
        calls::<F2<Object, *mut Tensor, bool>>(c"ggml_backend_dev_supports_op", word!(DeviceObject, iface.supports_op)),
        calls::<F2<Object, Object, bool>>(c"ggml_backend_dev_supports_buft", word!(DeviceObject, iface.supports_buft)),
        calls::<F2<Object, *mut Tensor, bool>>(c"ggml_backend_dev_offload_op", word!(DeviceObject, iface.offload_op)),
        returns(c"ggml_backend_dev_backend_reg", word!(DeviceObject, reg)),
        calls::<F1<Object, Pointer>>(c"ggml_backend_reg_name", word!(RegObject, iface.get_name)),
        calls::<F1<Object, usize>>(c"ggml_backend_reg_dev_count", word!(RegObject, iface.get_device_count)),
        calls::<F2<Object, Number<0>, Pointer>>(c"ggml_backend_reg_dev_get", word!(RegObject, iface.get_device)),
        calls::<F2<Object, Zeros, Pointer>>(c"ggml_backend_reg_get_proc_address", word!(RegObject, iface.get_proc_address)),
    ]
}

/// Tries the layout with `two_d` slots of strided copies, with the functions that `symbol` finds by
/// name. Returns the name of the first function that does not do what it should. A function that
/// ggml does not export proves nothing.
///
/// # Safety
/// The addresses are of ggml's functions of these names.
pub(super) unsafe fn refuted(
    two_d: usize,
    symbol: impl Fn(&CStr) -> Option<NonNull<c_void>>,
) -> Option<&'static CStr> {
    // Functions that take a tensor end the program if they take it for one without data.
    // SAFETY: the caller's promise is the callee's.
    if unsafe { !is_our_tensor(&symbol) } {
        return Some(c"ggml_get_data");
    }
    let refuted = trials(two_d).into_iter().find(|trial| {
        // SAFETY: the caller's promise is the callee's.
        symbol(trial.name).is_some_and(|function| unsafe { !trial.holds(function) })
    });
    refuted.map(|trial| trial.name)
}

impl Trial {
    /// # Safety
    /// `function` is ggml's of this name.
    unsafe fn holds(&self, function: NonNull<c_void>) -> bool {
        match self.call {
            Some(call) => {
                CALLED.set(None);
                let mut tensor = tensor(marks());
                let mut room = [0_u64; ROOM / size_of::<u64>()];
                let given = Given {
                    object: marks(),
                    tensor: &raw mut tensor,
                    room: (&raw mut room).cast(),
                };
                // SAFETY: it has the prototype that it was listed with. Whichever word of an object
                // of marks it calls, that is a function and ignores its arguments; it reads other
                // words as numbers, and the tensor as the one that `is_our_tensor` has seen.
                unsafe { call(function, given) };
                CALLED.get() == Some(self.word)
            }
            None => {
                // SAFETY: each function that is listed so has this prototype.
                let read = unsafe { as_function::<F1<Pointer, Pointer>>(function) };
                // SAFETY: it reads a word of the object.
                unsafe { read(marks()) }.addr() == MARKS[self.word] as usize
            }
        }
    }
}

/// The object of marks. A function of ggml that calls one callback only reads its object.
fn marks() -> *mut c_void {
    ptr::from_ref(&MARKS).cast_mut().cast()
}

/// A tensor of one float, in the buffer `buffer`.
fn tensor(buffer: *mut c_void) -> Tensor {
    Tensor {
        buffer: buffer.cast(),
        data: buffer,
        ..Tensor::scalar()
    }
}

/// Whether ggml reads the size and the data of our tensor correctly.
///
/// # Safety
/// The addresses are of ggml's functions of these names.
unsafe fn is_our_tensor(symbol: &impl Fn(&CStr) -> Option<NonNull<c_void>>) -> bool {
    const DATA: usize = 4096;
    let mut one = tensor(ptr::without_provenance_mut(DATA));
    let has_size = symbol(c"ggml_nbytes").is_none_or(|function| {
        // SAFETY: ggml's function of this name, with its prototype.
        let nbytes = unsafe { as_function::<F1<*mut Tensor, usize>>(function) };
        // SAFETY: it reads the tensor, and nothing behind its addresses.
        unsafe { nbytes(&raw mut one) == size_of::<f32>() }
    });
    has_size
        && symbol(c"ggml_get_data").is_none_or(|function| {
            // SAFETY: as above.
            let data = unsafe { as_function::<F1<*mut Tensor, Pointer>>(function) };
            // SAFETY: as above.
            unsafe { data(&raw mut one) }.addr() == DATA
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ggml::layout::callback_tables::TWO_D;

    /// `ggml_backend_buffer_clear` of a host, which calls the callback of this word.
    unsafe extern "C" fn clear<const WORD: usize>(object: *mut c_void, _: u8) {
        // SAFETY: an object of marks.
        let mark = unsafe { object.cast::<Mark>().wrapping_add(WORD).read() };
        // SAFETY: a mark.
        unsafe { mark() };
    }

    /// A function that reads this word of an object, or of a tensor.
    unsafe extern "C" fn reader<const WORD: usize>(object: *mut c_void) -> *mut c_void {
        // SAFETY: an object of marks, or a tensor.
        unsafe { object.cast::<*mut c_void>().wrapping_add(WORD).read() }
    }

    fn clears<const WORD: usize>() -> (&'static CStr, NonNull<c_void>) {
        let function: F2<*mut c_void, u8, ()> = clear::<WORD>;
        let address = NonNull::new(function as *mut c_void).unwrap();
        (c"ggml_backend_buffer_clear", address)
    }

    fn reads<const WORD: usize>(name: &'static CStr) -> (&'static CStr, NonNull<c_void>) {
        let function: F1<*mut c_void, *mut c_void> = reader::<WORD>;
        (name, NonNull::new(function as *mut c_void).unwrap())
    }

    fn refuted_by(two_d: usize, functions: &[(&CStr, NonNull<c_void>)]) -> Option<&'static CStr> {
        let symbol = |name: &CStr| {
            let (_, function) = functions.iter().find(|(known, _)| *known == name)?;
            Some(*function)
        };
        // SAFETY: the functions above, with the prototypes of ggml's of these names.
        unsafe { refuted(two_d, symbol) }
    }

    #[test]
    fn a_slot_more_is_seen_wherever_it_is() {
        let (at_7, at_9) = (clears::<7>(), clears::<9>());
        let name = at_7.0;
        assert_eq!(refuted_by(0, &[at_7]), None);
        assert_eq!(refuted_by(0, &[at_9]), Some(name));
        assert_eq!(refuted_by(TWO_D, &[at_9]), None);
        assert_eq!(refuted_by(TWO_D, &[at_7]), Some(name));
        let device = reads::<16>(c"ggml_backend_dev_backend_reg");
        assert_eq!(refuted_by(TWO_D, &[at_9, device]), Some(device.0));
    }

    #[test]
    fn missing_exports_prove_nothing() {
        assert_eq!(refuted_by(TWO_D, &[]), None);
    }

    #[test]
    fn another_tensor_is_seen_before_any_function_takes_one() {
        let data = reads::<30>(c"ggml_get_data");
        assert_eq!(refuted_by(TWO_D, &[data]), Some(data.0));
        let data = reads::<31>(c"ggml_get_data");
        assert_eq!(refuted_by(TWO_D, &[data]), None);
    }
}
