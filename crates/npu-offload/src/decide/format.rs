// SPDX-License-Identifier: MIT OR Apache-2.0
//! Number formats of stored weights, with ggml's numbers.

/// Kinds of number formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FormatClass {
    /// Floating point: F32, F16, BF16.
    Float,
    /// Blocks of small integers with scales, and other formats that can be decoded to f32.
    Quantised,
    /// Cannot be decoded to f32: integers, F64, formats of activations.
    Other,
}

/// A number format, without its decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NumberFormat {
    /// Its number in `enum ggml_type`, which is stable.
    pub id: u32,
    /// Elements of a block; 1 for a format without blocks.
    pub block_elements: usize,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Kind of the encoding.
    pub class: FormatClass,
}

impl NumberFormat {
    const fn new(id: u32, block_elements: usize, block_bytes: usize, class: FormatClass) -> Self {
        Self {
            id,
            block_elements,
            block_bytes,
            class,
        }
    }

    /// Bytes of a row of `elements`; `None` if they are not whole blocks or the size overflows.
    #[must_use]
    pub fn row_bytes(&self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block_elements) {
            return None;
        }
        (elements / self.block_elements).checked_mul(self.block_bytes)
    }

    /// Bytes of `elements` elements, scales included, rounded up.
    #[must_use]
    pub fn bytes(&self, elements: u64) -> u64 {
        let bytes = u128::from(elements) * self.block_bytes as u128;
        u64::try_from(bytes.div_ceil(self.block_elements.max(1) as u128)).unwrap_or(u64::MAX)
    }

    /// Whether an element takes at most `bits` bits, scales included.
    #[must_use]
    pub const fn is_within_bits(&self, bits: usize) -> bool {
        self.block_bytes * 8 <= bits * self.block_elements
    }

    /// Returns the name and the format of a number of `ggml_type`; `None` if [`FORMATS`] lacks it.
    #[must_use]
    pub fn of_ggml(id: u32) -> Option<(&'static str, Self)> {
        FORMATS.into_iter().find(|(_, format)| format.id == id)
    }

    /// Returns the format of this name in ggml, in upper case; `None` if [`FORMATS`] lacks it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let found = FORMATS.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, format)| format)
    }
}

use FormatClass::{Float, Quantised};

/// Formats of weights in GGUF files. Numbers and blocks are those of `ggml.h` in ggml 0.27.
pub const FORMATS: [(&str, NumberFormat); 26] = [
    ("F32", NumberFormat::new(0, 1, 4, Float)),
    ("F16", NumberFormat::new(1, 1, 2, Float)),
    ("Q4_0", NumberFormat::new(2, 32, 18, Quantised)),
    ("Q4_1", NumberFormat::new(3, 32, 20, Quantised)),
    ("Q5_0", NumberFormat::new(6, 32, 22, Quantised)),
    ("Q5_1", NumberFormat::new(7, 32, 24, Quantised)),
    ("Q8_0", NumberFormat::new(8, 32, 34, Quantised)),
    ("Q2_K", NumberFormat::new(10, 256, 84, Quantised)),
    ("Q3_K", NumberFormat::new(11, 256, 110, Quantised)),
    ("Q4_K", NumberFormat::new(12, 256, 144, Quantised)),
    ("Q5_K", NumberFormat::new(13, 256, 176, Quantised)),
    ("Q6_K", NumberFormat::new(14, 256, 210, Quantised)),
    ("IQ2_XXS", NumberFormat::new(16, 256, 66, Quantised)),
    ("IQ2_XS", NumberFormat::new(17, 256, 74, Quantised)),
    ("IQ3_XXS", NumberFormat::new(18, 256, 98, Quantised)),
    ("IQ1_S", NumberFormat::new(19, 256, 50, Quantised)),
    ("IQ4_NL", NumberFormat::new(20, 32, 18, Quantised)),
    ("IQ3_S", NumberFormat::new(21, 256, 110, Quantised)),
    ("IQ2_S", NumberFormat::new(22, 256, 82, Quantised)),
    ("IQ4_XS", NumberFormat::new(23, 256, 136, Quantised)),
    ("IQ1_M", NumberFormat::new(29, 256, 56, Quantised)),
    ("BF16", NumberFormat::new(30, 1, 2, Float)),
    ("TQ1_0", NumberFormat::new(34, 256, 54, Quantised)),
    ("TQ2_0", NumberFormat::new(35, 256, 66, Quantised)),
    ("MXFP4", NumberFormat::new(39, 32, 17, Quantised)),
    ("Q8_K", NumberFormat::new(15, 256, 292, Quantised)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_found_by_number_and_by_name() {
        for (name, format) in FORMATS {
            assert_eq!(NumberFormat::of_ggml(format.id), Some((name, format)));
            assert_eq!(NumberFormat::named(name), Some(format));
        }
        assert_eq!(NumberFormat::of_ggml(u32::MAX), None);
        assert_eq!(NumberFormat::named("Q9"), None);
    }

    #[test]
    fn rows_are_whole_blocks() {
        let q8_0 = NumberFormat::named("Q8_0").unwrap();
        assert_eq!(q8_0.row_bytes(64), Some(68));
        assert_eq!(q8_0.row_bytes(48), None);
        assert_eq!(q8_0.bytes(48), 51);
        assert!(q8_0.is_within_bits(9) && !q8_0.is_within_bits(8));
        let bf16 = NumberFormat::named("BF16").unwrap();
        assert_eq!(bf16.row_bytes(usize::MAX), None);
    }
}
