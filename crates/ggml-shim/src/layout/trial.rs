// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries a layout on the loaded ggml, before anything relies on it.
//!
//! ggml exports functions that do no more than call one callback of an object, or read one
//! of its pointers. Each is given an object whose words are all marks: functions that tell
//! which of them was called. A table that grew a slot, in a version that nobody has tried, gives
//! another mark than the layout says.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::{self, NonNull};

use super::TableLayout;
use super::tables::{BackendObject, BufferObject, slots};
use crate::abi::{DeviceObject, MAX_DIMS, RegObject, Tensor};

/// Words of an object of marks: more than any of ggml's has.
const WORDS: usize = 40;
/// Bytes that a function may be told to write to, more than it does.
const SCRATCH: usize = 4096;

/// Arguments of any of the functions: addresses and numbers, which the ABIs of 64-bit Linux
/// pass alike.
type Accessor = unsafe extern "C" fn(*mut c_void, usize, usize, usize) -> usize;
/// A mark.
type Mark = unsafe extern "C" fn() -> usize;

thread_local! {
    /// The mark that was called last.
    static CALLED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The mark of word `WORD`.
unsafe extern "C" fn mark<const WORD: usize>() -> usize {
    CALLED.set(Some(WORD));
    0
}

macro_rules! marks {
    ($($word:literal)*) => { [$(mark::<$word> as Mark),*] };
}

/// An object of which each word is the mark of its place.
static MARKS: [Mark; WORDS] = marks!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19
    20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
);

/// What a function does with its object.
#[derive(Debug, Clone, Copy)]
enum Does {
    /// It calls the callback of this word.
    Calls(usize),
    /// It returns this word.
    Returns(usize),
}

/// A function of ggml.
struct Trial {
    name: &'static CStr,
    does: Does,
    /// Whether the object is the buffer of a tensor, which it is given.
    by_tensor: bool,
}

/// The place of a field, in words.
macro_rules! word {
    ($object:ty, $($field:tt)+) => { offset_of!($object, $($field)+) / size_of::<usize>() };
}

fn calls(name: &'static CStr, word: usize) -> Trial {
    let (does, by_tensor) = (Does::Calls(word), false);
    Trial {
        name,
        does,
        by_tensor,
    }
}

fn returns(name: &'static CStr, word: usize) -> Trial {
    let does = Does::Returns(word);
    Trial {
        does,
        ..calls(name, word)
    }
}

fn by_tensor(name: &'static CStr, word: usize) -> Trial {
    let by_tensor = true;
    Trial {
        by_tensor,
        ..calls(name, word)
    }
}

/// What has to hold in a layout with so many slots of strided copies. (That a buffer is freed by its
/// first callback is not tried: ggml would free the object too.)
#[rustfmt::skip]
fn trials<const TWO_D: usize>() -> Vec<Trial> {
    vec![
        // `struct ggml_backend_buffer_type` begins with these two.
        calls(c"ggml_backend_buft_name", 0),
        calls(c"ggml_backend_buft_alloc_buffer", 1),
        calls(c"ggml_backend_buffer_init_tensor", word!(BufferObject<TWO_D>, iface.init_tensor)),
        by_tensor(c"ggml_backend_tensor_memset", word!(BufferObject<TWO_D>, iface.memset_tensor)),
        by_tensor(c"ggml_backend_tensor_set", word!(BufferObject<TWO_D>, iface.set_tensor)),
        calls(c"ggml_backend_buffer_clear", word!(BufferObject<TWO_D>, iface.clear)),
        returns(c"ggml_backend_buffer_get_type", word!(BufferObject<TWO_D>, buffer_type)),
        calls(c"ggml_backend_name", word!(BackendObject<TWO_D>, iface.get_name)),
        calls(c"ggml_backend_free", word!(BackendObject<TWO_D>, iface.free)),
        calls(c"ggml_backend_synchronize", word!(BackendObject<TWO_D>, iface.synchronize)),
        calls(c"ggml_backend_graph_compute_async", word!(BackendObject<TWO_D>, iface.graph_compute)),
        returns(c"ggml_backend_get_device", word!(BackendObject<TWO_D>, device)),
        calls(c"ggml_backend_dev_name", word!(DeviceObject, iface.get_name)),
        calls(c"ggml_backend_dev_description", word!(DeviceObject, iface.get_description)),
        calls(c"ggml_backend_dev_memory", word!(DeviceObject, iface.get_memory)),
        calls(c"ggml_backend_dev_type", word!(DeviceObject, iface.get_type)),
        calls(c"ggml_backend_dev_get_props", word!(DeviceObject, iface.get_props)),
        calls(c"ggml_backend_dev_init", word!(DeviceObject, iface.init_backend)),
        calls(c"ggml_backend_dev_buffer_type", word!(DeviceObject, iface.get_buffer_type)),
        calls(c"ggml_backend_dev_buffer_from_host_ptr", word!(DeviceObject, iface.buffer_from_host_ptr)),
        calls(c"ggml_backend_dev_supports_op", word!(DeviceObject, iface.supports_op)),
        calls(c"ggml_backend_dev_supports_buft", word!(DeviceObject, iface.supports_buft)),
        calls(c"ggml_backend_dev_offload_op", word!(DeviceObject, iface.offload_op)),
        returns(c"ggml_backend_dev_backend_reg", word!(DeviceObject, reg)),
        calls(c"ggml_backend_reg_name", word!(RegObject, iface.get_name)),
        calls(c"ggml_backend_reg_dev_count", word!(RegObject, iface.get_device_count)),
        calls(c"ggml_backend_reg_dev_get", word!(RegObject, iface.get_device)),
        calls(c"ggml_backend_reg_get_proc_address", word!(RegObject, iface.get_proc_address)),
    ]
}

/// Tries `layout` with the functions that `symbol` finds by their names; the name of the first that
/// does not do what it should. A function that ggml does not export proves nothing.
///
/// # Safety
/// The addresses are of ggml's functions of these names.
pub(super) unsafe fn refuted(
    layout: TableLayout,
    symbol: impl Fn(&CStr) -> Option<NonNull<c_void>>,
) -> Option<&'static CStr> {
    let mut trials = match layout {
        TableLayout::V0_9_1 => trials::<0>(),
        TableLayout::V0_10 | TableLayout::V0_26 => trials::<{ slots::TWO_D }>(),
    };
    // Functions that take a tensor end the program if they take it for one without data.
    // SAFETY: the caller's promise is the callee's.
    if unsafe { !is_our_tensor(&symbol) } {
        return Some(c"ggml_get_data");
    }
    trials.retain(|trial| {
        let Some(function) = symbol(trial.name) else {
            return false;
        };
        // SAFETY: the caller's promise is the callee's.
        unsafe { !trial.holds(function) }
    });
    trials.first().map(|trial| trial.name)
}

impl Trial {
    /// # Safety
    /// `function` is ggml's of this name.
    unsafe fn holds(&self, function: NonNull<c_void>) -> bool {
        let mut scratch = [0_u64; SCRATCH / size_of::<u64>()];
        let at = ptr::from_mut(&mut scratch).addr();
        // Nothing but marks and what is scratch is behind these addresses; the marks' own
        // memory is only read.
        let object = ptr::from_ref(&MARKS).cast_mut().cast::<c_void>();
        let mut tensor = tensor(object);
        let (first, rest) = match self.by_tensor {
            // The value or where it comes from, the offset, the size.
            true => (ptr::from_mut(&mut tensor).cast(), [at, 0, 1]),
            false => (object, [at; 3]),
        };
        CALLED.set(None);
        // SAFETY: a function pointer has the size of a data pointer on every Linux target;
        // the function is one of ggml's, and takes no more than four arguments, addresses or
        // numbers, by the list above.
        let function = unsafe { std::mem::transmute::<NonNull<c_void>, Accessor>(function) };
        // SAFETY: it calls a word of the object, whichever it is a mark, with arguments that
        // marks ignore; or it reads one; what it writes is at most the properties of a device,
        // for which there is room.
        let returned = unsafe { function(first, rest[0], rest[1], rest[2]) };
        match self.does {
            Does::Calls(word) => CALLED.get() == Some(word),
            Does::Returns(word) => returned == MARKS[word] as usize,
        }
    }
}

/// One float, in the buffer `buffer`.
fn tensor(buffer: *mut c_void) -> Tensor {
    Tensor {
        type_id: 0,
        buffer: buffer.cast(),
        ne: [1; MAX_DIMS],
        nb: [size_of::<f32>(); MAX_DIMS],
        op: 0,
        op_params: Default::default(),
        flags: 0,
        src: [ptr::null_mut(); _],
        view_src: ptr::null_mut(),
        view_offs: 0,
        data: buffer,
        name: [0; _],
        extra: ptr::null_mut(),
        padding: [0; _],
    }
}

/// Whether ggml sees in a tensor what it is.
///
/// # Safety
/// The addresses are of ggml's functions of these names.
unsafe fn is_our_tensor(symbol: &impl Fn(&CStr) -> Option<NonNull<c_void>>) -> bool {
    let mut one = tensor(ptr::without_provenance_mut(SCRATCH));
    let expected = [
        (c"ggml_nbytes", size_of::<f32>()),
        (c"ggml_get_data", SCRATCH),
    ];
    expected.into_iter().all(|(name, expected)| {
        let Some(function) = symbol(name) else {
            return true;
        };
        // SAFETY: as in `Trial::holds`.
        let function = unsafe { std::mem::transmute::<NonNull<c_void>, Accessor>(function) };
        // SAFETY: it reads the tensor, and nothing behind its addresses.
        let seen = unsafe { function(ptr::from_mut(&mut one).cast(), 0, 0, 0) };
        seen == expected
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function of a host that calls the callback of this word.
    unsafe extern "C" fn caller<const WORD: usize>(
        object: *mut c_void,
        _: usize,
        _: usize,
        _: usize,
    ) -> usize {
        // SAFETY: an object of marks.
        let mark = unsafe { object.cast::<Mark>().wrapping_add(WORD).read() };
        // SAFETY: a mark.
        unsafe { mark() }
    }

    /// One that reads it.
    unsafe extern "C" fn reader<const WORD: usize>(
        object: *mut c_void,
        _: usize,
        _: usize,
        _: usize,
    ) -> usize {
        // SAFETY: an object of marks.
        unsafe { object.cast::<usize>().wrapping_add(WORD).read() }
    }

    fn refuted_by(layout: TableLayout, functions: &[(&CStr, Accessor)]) -> Option<&'static CStr> {
        let symbol = |name: &CStr| {
            let (_, function) = functions.iter().find(|(known, _)| *known == name)?;
            NonNull::new(*function as *mut c_void)
        };
        // SAFETY: the functions above, which do as ggml's of these names would.
        unsafe { refuted(layout, symbol) }
    }

    #[test]
    fn a_slot_more_is_seen_wherever_it_is() {
        let name = c"ggml_backend_buffer_clear";
        let at_7: (&CStr, Accessor) = (name, caller::<7>);
        let at_9: (&CStr, Accessor) = (name, caller::<9>);
        assert_eq!(refuted_by(TableLayout::V0_9_1, &[at_7]), None);
        assert_eq!(refuted_by(TableLayout::V0_9_1, &[at_9]), Some(name));
        assert_eq!(refuted_by(TableLayout::V0_10, &[at_9]), None);
        assert_eq!(refuted_by(TableLayout::V0_26, &[at_7]), Some(name));
        let device: (&CStr, Accessor) = (c"ggml_backend_dev_backend_reg", reader::<16>);
        assert_eq!(
            refuted_by(TableLayout::V0_26, &[at_9, device]),
            Some(device.0)
        );
    }

    #[test]
    fn what_is_not_exported_proves_nothing() {
        assert_eq!(refuted_by(TableLayout::V0_26, &[]), None);
    }

    #[test]
    fn another_tensor_is_seen_before_any_function_takes_one() {
        let data: (&CStr, Accessor) = (c"ggml_get_data", reader::<30>);
        assert_eq!(refuted_by(TableLayout::V0_26, &[data]), Some(data.0));
        let data: (&CStr, Accessor) = (c"ggml_get_data", reader::<31>);
        assert_eq!(refuted_by(TableLayout::V0_26, &[data]), None);
    }
}
