// SPDX-License-Identifier: MIT OR Apache-2.0
//! ggml's number formats: their sizes, and the host's own decoders.
//!
//! Every format that the loaded ggml can decode to f32 can be offloaded, including formats of later
//! versions: nothing here depends on the layout of a block.

use std::ffi::{c_char, c_int, c_void};
use std::hash::{Hash, Hasher};
use std::mem::{offset_of, size_of};

use npu_offload::{FormatClass, NumberFormat};

use crate::ggml::abi::type_id;
use crate::ggml::symbols::{SymbolScope, function};

/// `ggml_to_float_t`: decodes this number of elements.
type ToFloat = unsafe extern "C" fn(*const c_void, *mut f32, i64);

/// `struct ggml_type_traits`, the same in every version from 0.9.1 on.
#[repr(C)]
#[derive(Debug)]
struct Traits {
    name: *const c_char,
    block_elements: i64,
    interleaved: i64,
    block_bytes: usize,
    is_quantised: bool,
    to_float: Option<ToFloat>,
    from_float: *const c_void,
}

const _: () = {
    assert!(size_of::<Traits>() == 56);
    assert!(offset_of!(Traits, block_elements) == 8);
    assert!(offset_of!(Traits, block_bytes) == 24);
    assert!(offset_of!(Traits, is_quantised) == 32);
    assert!(offset_of!(Traits, to_float) == 40);
};

/// A number format of the host, with its decoder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostFormat {
    pub(crate) number: NumberFormat,
    /// `None` for F32, which ggml does not decode, and for formats of [`FormatClass::Other`].
    to_float: Option<ToFloat>,
}

// Equality ignores the decoder, which the number determines.
impl PartialEq for HostFormat {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for HostFormat {}

impl Hash for HostFormat {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl HostFormat {
    /// Whether a row that begins at this address can be decoded: ggml's decoders read scales of two
    /// or four bytes in place.
    pub(crate) fn is_aligned(&self, bytes: &[u8]) -> bool {
        // No format has a field of more than four bytes, and the size of a
        // block is a multiple of the alignment of its fields.
        let alignment = 1 << self.number.block_bytes.trailing_zeros().min(2);
        bytes.as_ptr().addr().is_multiple_of(alignment)
    }

    /// Decodes one row: `bytes` must be [`NumberFormat::row_bytes`] of `out`'s
    /// length, and aligned.
    ///
    /// # Panics
    /// If they are not, or if the format is of [`FormatClass::Other`].
    pub(crate) fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(self.number.row_bytes(out.len()), Some(bytes.len()));
        assert!(self.is_aligned(bytes) && self.number.class != FormatClass::Other);
        match self.to_float {
            None => {
                let numbers = bytes.as_chunks::<{ size_of::<f32>() }>().0;
                for (out, bytes) in out.iter_mut().zip(numbers) {
                    *out = f32::from_le_bytes(*bytes);
                }
            }
            Some(to_float) => {
                // A slice has at most isize::MAX bytes.
                let elements = i64::try_from(out.len()).unwrap_or(i64::MAX);
                // SAFETY: the host's decoder of this format reads as many
                // blocks as the elements make, which is the length of `bytes`,
                // checked above with its alignment, and writes as many floats
                // as `out` has. It keeps no state.
                unsafe { to_float(bytes.as_ptr().cast(), out.as_mut_ptr(), elements) };
            }
        }
    }
}

/// The host's table of formats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FormatTable(unsafe extern "C" fn(c_int) -> *const Traits);

impl FormatTable {
    /// Finds the table; `None` if the host does not export it.
    pub(crate) fn find(place: &SymbolScope) -> Option<Self> {
        function!(place, c"ggml_get_type_traits").map(Self)
    }

    /// The format with this number.
    ///
    /// # Safety
    /// `id` is the type of a tensor of the host: the length of the table is not checked.
    pub(crate) unsafe fn format(&self, id: u32) -> HostFormat {
        let mut entry = HostFormat {
            number: NumberFormat {
                id,
                block_elements: 1,
                block_bytes: 1,
                class: FormatClass::Other,
            },
            to_float: None,
        };
        let Ok(number) = c_int::try_from(id) else {
            return entry;
        };
        // SAFETY: the number lies within the table, by the caller's promise.
        let traits = unsafe { (self.0)(number) };
        // SAFETY: null, or an entry of the host's static table.
        let Some(traits) = (unsafe { traits.as_ref() }) else {
            return entry;
        };
        let block_elements = usize::try_from(traits.block_elements).unwrap_or(0);
        // ggml has removed numbers without blocks.
        if block_elements > 0 && traits.block_bytes > 0 {
            entry.number.block_elements = block_elements;
            entry.number.block_bytes = traits.block_bytes;
            entry.number.class = match traits.to_float {
                _ if id == type_id::F32 => FormatClass::Float,
                None => FormatClass::Other,
                Some(_) if traits.is_quantised => FormatClass::Quantised,
                Some(_) => FormatClass::Float,
            };
            entry.to_float = traits.to_float.filter(|_| id != type_id::F32);
        }
        entry
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{ptr, slice};

    use half::{bf16, f16};
    use zerocopy::IntoBytes;

    use super::*;

    /// `GGML_TYPE_BF16`
    pub(crate) const BF16: u32 = 30;
    /// `GGML_TYPE_Q8_0`: blocks of 32 signed bytes with one FP16 scale.
    pub(crate) const Q8_0: u32 = 8;
    /// Decodes blocks of `ELEMENTS` elements and `BYTES` bytes, one after the other.
    ///
    /// # Safety
    /// `from` has the blocks of `count` elements, `to` has room for them.
    unsafe fn blocks<const ELEMENTS: usize, const BYTES: usize>(
        from: *const c_void,
        to: *mut f32,
        count: i64,
        decode: impl Fn(&[u8; BYTES], &mut [f32; ELEMENTS]),
    ) {
        let blocks = usize::try_from(count).unwrap() / ELEMENTS;
        // SAFETY: the caller's promise.
        let from = unsafe { slice::from_raw_parts(from.cast::<[u8; BYTES]>(), blocks) };
        // SAFETY: the caller's promise.
        let to = unsafe { slice::from_raw_parts_mut(to.cast::<[f32; ELEMENTS]>(), blocks) };
        for (from, to) in from.iter().zip(to) {
            decode(from, to);
        }
    }

    unsafe extern "C" fn f16_to_float(from: *const c_void, to: *mut f32, count: i64) {
        let decode = |from: &[u8; 2], to: &mut [f32; 1]| to[0] = f16::from_le_bytes(*from).into();
        // SAFETY: the caller passes so many elements on both sides.
        unsafe { blocks(from, to, count, decode) };
    }

    unsafe extern "C" fn bf16_to_float(from: *const c_void, to: *mut f32, count: i64) {
        let decode = |from: &[u8; 2], to: &mut [f32; 1]| to[0] = bf16::from_le_bytes(*from).into();
        // SAFETY: the caller passes so many elements on both sides.
        unsafe { blocks(from, to, count, decode) };
    }

    unsafe extern "C" fn q8_0_to_float(from: *const c_void, to: *mut f32, count: i64) {
        let decode = |from: &[u8; 34], to: &mut [f32; 32]| {
            let scale = f16::from_le_bytes([from[0], from[1]]).to_f32();
            for (to, element) in to.iter_mut().zip(&from[2..]) {
                *to = scale * f32::from(i8::from_le_bytes([*element]));
            }
        };
        // SAFETY: the caller passes so many blocks and elements.
        unsafe { blocks(from, to, count, decode) };
    }

    unsafe extern "C" fn traits(id: c_int) -> *const Traits {
        struct Table([Traits; 5]);
        // SAFETY: nothing is written, and the pointers in it are null or of functions.
        unsafe impl Sync for Table {}
        const fn entry(blocks: (i64, usize), to_float: Option<ToFloat>) -> Traits {
            Traits {
                name: ptr::null(),
                block_elements: blocks.0,
                interleaved: 0,
                block_bytes: blocks.1,
                is_quantised: blocks.0 > 1,
                to_float,
                from_float: ptr::null(),
            }
        }
        static TABLE: Table = Table([
            entry((1, 4), None),
            entry((1, 2), Some(f16_to_float)),
            entry((1, 2), Some(bf16_to_float)),
            entry((32, 34), Some(q8_0_to_float)),
            // A number that ggml has removed.
            entry((0, 0), None),
        ]);
        let index = match u32::try_from(id) {
            Ok(type_id::F32 | type_id::I32) => 0,
            Ok(type_id::F16) => 1,
            Ok(BF16) => 2,
            Ok(Q8_0) => 3,
            _ => 4,
        };
        &raw const TABLE.0[index]
    }

    /// A table of F32, F16, BF16, Q8_0 and I32, with small decoders.
    pub(crate) fn fake_types() -> FormatTable {
        FormatTable(traits)
    }

    /// The format of `id` in that table.
    pub(crate) fn format(id: u32) -> HostFormat {
        // SAFETY: the fake table answers for any number.
        unsafe { fake_types().format(id) }
    }

    #[test]
    fn formats_are_classified_by_what_the_host_can_do() {
        for (id, class) in [
            (type_id::F32, FormatClass::Float),
            (type_id::F16, FormatClass::Float),
            (BF16, FormatClass::Float),
            (Q8_0, FormatClass::Quantised),
            (type_id::I32, FormatClass::Other),
            (4, FormatClass::Other),
            (u32::MAX, FormatClass::Other),
        ] {
            assert_eq!(format(id).number.class, class, "type {id}");
        }
    }

    #[test]
    fn misaligned_rows_are_seen() {
        let words = [0_u32; 4];
        let bytes = words.as_bytes();
        for (id, aligned) in [
            (type_id::F32, [true, false, false]),
            (BF16, [true, false, true]),
        ] {
            let found = [0, 1, 2].map(|start| format(id).is_aligned(&bytes[start..]));
            assert_eq!(found, aligned, "type {id}");
        }
    }
}
