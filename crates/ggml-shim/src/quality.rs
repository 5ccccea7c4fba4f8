// SPDX-License-Identifier: MIT OR Apache-2.0
//! In which precisions `auto` may compute: those that keep what the whole
//! model loses, against F16, within twice of what its file loses already.
//!
//! The figures behind this are in docs/llama.md, "What auto chooses". In short:
//!
//! | weights | loss of the file | what may come on top of it |
//! |---|---|---|
//! | F32, F16, BF16 | none | nothing: FP16 |
//! | 8 bits, a scale per 32 | about that of its 8-bit activations | as much again: FP16 |
//! | 7 bits and fewer | several times as much | rotated INT8, and FP16 |
//!
//! Of 8-bit weights rotated INT8 takes up what is allowed without a margin where
//! data are even; and its scale is that of the largest of K numbers, not of 32, so
//! that it loses more the longer rows are.
//!
//! INT8 without a rotation is never among them, however coarse the weights:
//! what it loses grows with the outliers of the activations without a bound,
//! and whether a model has any is not known when it is loaded. Nor are four
//! bits: they lose more than any file that does not have as few itself, and
//! their groups of K cost more time than they save.

use crate::precision::ComputeType;
use crate::types::{FormatClass, NumberFormat};

/// Nothing but what rounds as the CPU does.
const EXACT: &[ComputeType] = &[ComputeType::Fp16];

/// What adds little to a loss of 2^-7 of a weight and more.
const COARSE: &[ComputeType] = &[ComputeType::Fp16, ComputeType::Int8Hadamard];

/// Bits a weight, scales included, of the finest format of which a second
/// rounding is lost in the first: Q6_K has 6.56. The next finer one is Q8_0
/// with 8.5, of which it is not. In between ggml has none, so that a format that
/// comes later and lies there counts as fine.
const COARSE_BITS: usize = 7;

/// The smallest block of a rotation that was measured on a real model, MiniLM's
/// rows of 384 (docs/llama.md): smaller ones spread outliers over fewer channels,
/// down to INT8 without a rotation.
const ROTATED_MIN: usize = 128;

/// The precisions that `auto` may choose for rows of `k` weights of this format,
/// whatever they cost.
pub(crate) fn allowed(weights: NumberFormat, k: usize) -> &'static [ComputeType] {
    let bits = weights.block_bytes * 8;
    // `COARSE_BITS` bits for each element of a block would be so many.
    let coarse = COARSE_BITS * weights.block_elements;
    // Blocks of a rotation are the largest powers of two that divide K.
    let rotates = k > 0 && k.trailing_zeros() >= ROTATED_MIN.ilog2();
    match weights.class {
        FormatClass::Quantised if bits <= coarse && rotates => COARSE,
        // A float of few bits, which ggml may have one day, is a number that
        // somebody rounded on purpose; what it lost is not known.
        _ => EXACT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A format of so many bytes for so many elements.
    fn format(class: FormatClass, block_bytes: usize, block_elements: usize) -> NumberFormat {
        NumberFormat {
            id: u32::MAX,
            block_elements,
            block_bytes,
            class,
        }
    }

    #[test]
    fn rows_that_hardly_rotate_are_not_rounded_to_int8() {
        let q4_0 = format(FormatClass::Quantised, 18, 32);
        for (k, coarse) in [
            (0, false),
            (32, false),
            (2880, false),
            (384, true),
            (11008, true),
        ] {
            let allowed = allowed(q4_0, k);
            assert_eq!(allowed.contains(&ComputeType::Int8Hadamard), coarse, "{k}");
        }
    }

    /// Sizes of blocks are ggml's.
    #[test]
    fn each_format_may_lose_as_much_again_as_it_has_lost() {
        for (name, class, bytes, elements, coarse) in [
            ("F32", FormatClass::Float, 4, 1, false),
            ("F16", FormatClass::Float, 2, 1, false),
            ("BF16", FormatClass::Float, 2, 1, false),
            ("Q8_0", FormatClass::Quantised, 34, 32, false),
            ("Q8_K", FormatClass::Quantised, 292, 256, false),
            ("Q6_K", FormatClass::Quantised, 210, 256, true),
            ("Q5_K", FormatClass::Quantised, 176, 256, true),
            ("Q5_0", FormatClass::Quantised, 22, 32, true),
            ("Q5_1", FormatClass::Quantised, 24, 32, true),
            ("Q4_K", FormatClass::Quantised, 144, 256, true),
            ("Q4_0", FormatClass::Quantised, 18, 32, true),
            ("Q4_1", FormatClass::Quantised, 20, 32, true),
            ("IQ4_NL", FormatClass::Quantised, 18, 32, true),
            ("MXFP4", FormatClass::Quantised, 17, 32, true),
            ("Q3_K", FormatClass::Quantised, 110, 256, true),
            ("Q2_K", FormatClass::Quantised, 84, 256, true),
            ("some float of 8 bits", FormatClass::Float, 1, 1, false),
            (
                "some blocks of 7.5 bits",
                FormatClass::Quantised,
                30,
                32,
                false,
            ),
        ] {
            let allowed = allowed(format(class, bytes, elements), 4096);
            assert!(allowed.contains(&ComputeType::Fp16), "{name}");
            assert_eq!(
                allowed.contains(&ComputeType::Int8Hadamard),
                coarse,
                "{name}"
            );
            let others = [
                ComputeType::Int8,
                ComputeType::W4A8,
                ComputeType::Int4Hadamard,
            ];
            assert!(
                others.iter().all(|other| !allowed.contains(other)),
                "{name}"
            );
        }
    }
}
