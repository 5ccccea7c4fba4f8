// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers of ggml's operations, found by their names.

use std::ffi::{CStr, c_char, c_int};

use crate::ggml::load_error::LoadError;

/// `GGML_OP_COUNT` of ggml 0.9.1, the smallest of all supported versions:
/// `ggml_op_name` reads a table of at least this length.
const SMALLEST_OP_COUNT: c_int = 90;

/// `const char * ggml_op_name(enum ggml_op)`.
pub(super) type OpName = unsafe extern "C" fn(c_int) -> *const c_char;

/// Numbers of the operations that are handled here. They differ between versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpIds {
    /// A tensor that is not the result of an operation.
    pub(crate) none: u32,
    pub(crate) mul_mat: u32,
    /// Matmul whose rows choose their weights.
    pub(crate) mul_mat_id: u32,
    /// Attention in one operation.
    pub(crate) flash_attn: u32,
    /// Rows rotated by their positions.
    pub(crate) rope: u32,
    /// Rows scaled to the same mean square.
    pub(crate) rms_norm: u32,
    /// Sums and products, element by element.
    pub(crate) elementwise: [u32; 2],
    /// Operations that only describe data that lies elsewhere: RESHAPE, VIEW,
    /// PERMUTE, TRANSPOSE.
    pub(crate) views: [u32; 4],
}

impl OpIds {
    /// Finds the numbers of the operations by their names.
    pub(super) fn find(op_name: OpName, version: &str) -> Result<Self, LoadError> {
        let names: Vec<String> = (0..SMALLEST_OP_COUNT)
            .map(|index| {
                // SAFETY: the index lies within the table of names, see the
                // constant.
                let name = unsafe { op_name(index) };
                // SAFETY: the names are string literals.
                unsafe { text(name) }
            })
            .collect();
        let number = |name: &'static str| {
            let found = (0..).zip(&names).find(|(_, known)| *known == name);
            let (number, _) = found.ok_or_else(|| LoadError::NoSuchOp(version.to_owned(), name))?;
            Ok(number)
        };
        Ok(Self {
            none: number("NONE")?,
            mul_mat: number("MUL_MAT")?,
            mul_mat_id: number("MUL_MAT_ID")?,
            flash_attn: number("FLASH_ATTN_EXT")?,
            rope: number("ROPE")?,
            rms_norm: number("RMS_NORM")?,
            elementwise: [number("ADD")?, number("MUL")?],
            views: [
                number("RESHAPE")?,
                number("VIEW")?,
                number("PERMUTE")?,
                number("TRANSPOSE")?,
            ],
        })
    }
}

/// Copies a string; null counts as an empty one.
///
/// # Safety
/// `pointer` is null or a NUL-terminated string that nobody changes meanwhile.
pub(super) unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: not null, hence a string by the caller's promise.
    let string = unsafe { CStr::from_ptr(pointer) };
    string.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_numbered_by_name_not_by_place() {
        extern "C" fn shuffled(index: c_int) -> *const c_char {
            match index {
                0 => c"NONE".as_ptr(),
                7 => c"MUL_MAT".as_ptr(),
                6 => c"MUL_MAT_ID".as_ptr(),
                8 => c"TRANSPOSE".as_ptr(),
                9 => c"VIEW".as_ptr(),
                10 => c"PERMUTE".as_ptr(),
                11 => c"RESHAPE".as_ptr(),
                12 => c"ROPE".as_ptr(),
                13 => c"RMS_NORM".as_ptr(),
                14 => c"ADD".as_ptr(),
                15 => c"MUL".as_ptr(),
                16 => c"FLASH_ATTN_EXT".as_ptr(),
                _ => c"OTHER".as_ptr(),
            }
        }
        let ops = OpIds::find(shuffled, "x").unwrap();
        assert_eq!((ops.mul_mat, ops.mul_mat_id, ops.flash_attn), (7, 6, 16));
        assert_eq!(ops.views, [11, 9, 10, 8]);

        extern "C" fn none(_: c_int) -> *const c_char {
            std::ptr::null()
        }
        let error = OpIds::find(none, "9.9").unwrap_err();
        let error = error.to_string();
        assert!(error.contains("9.9") && error.contains("NONE"), "{error}");
    }
}
