// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the CPU does to activations: instructions that `cargo xtask instructions`
//! has recorded in docs/matmul-figures.md.

use anyhow::{Context, Result};
use npu_matmul::quantise::Operands;

use super::kinds::QuantiseVariant;
use crate::generated::section;
use crate::{instructions, paths};

/// Instructions for an element of each kernel.
pub(super) struct KernelInstructions(Vec<(String, f64)>);

impl KernelInstructions {
    /// Reads the counts that are on the page now.
    pub(super) fn recorded() -> Result<Self> {
        let path = paths::root().join(instructions::PAGE);
        let page = paths::text(&path)?;
        Ok(Self::in_table(section(&page, instructions::SECTION)?))
    }

    fn in_table(table: &str) -> Self {
        let kernel = |line: &str| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            Some((cells.next()?.to_owned(), cells.next()?.parse().ok()?))
        };
        Self(table.lines().filter_map(kernel).collect())
    }

    fn of(&self, kernel: &str) -> Result<f64> {
        let found = self.0.iter().find(|(name, _)| name == kernel);
        found.map(|(_, count)| *count).with_context(|| {
            format!(
                "{} counts no `{kernel}`; run `cargo xtask instructions --record`",
                instructions::PAGE
            )
        })
    }

    /// Instructions for an element of A, f32, that becomes FP16 in `copies` tiles,
    /// one for each file descriptor that needs it.
    pub(super) fn fp16(&self, copies: usize) -> Result<f64> {
        let pack = self.of("pack f16 activations")?;
        // Rounded once, into rows, which the tiles of each file descriptor are made of.
        let round = self.of("f32 to f16 and pack")? - pack;
        Ok(round + copies as f64 * pack)
    }

    /// The same of one that is quantised.
    pub(super) fn quantised(&self, kind: &QuantiseVariant, copies: usize) -> Result<f64> {
        let quantise = self.of("absmax, quantise and pack")? - self.of("pack int8 activations")?;
        let rotate = match kind.options.rotated {
            true => self.of("Hadamard, blocks of 4096")?,
            false => 0.0,
        };
        let pack = self.of(match kind.options.operands {
            Operands::W8A8 => "pack int8 activations",
            Operands::W4A8 => "split into nibbles and pack",
            // The same routine: atoms of INT4 are as long as runs of weights.
            Operands::W4A4 => "pack int4 weights",
        })?;
        Ok(quantise + rotate + copies as f64 * pack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans are made with the recorded counts.
    #[test]
    fn the_host_model_has_what_was_counted() {
        use npu_matmul::Dtype;
        use npu_matmul::plan::{KernelCost, UnpackTo};
        use rknpu_regcmd::MatmulType;

        let counted = KernelInstructions::recorded().unwrap();
        let of = |kernel| 100.0 * counted.of(kernel).unwrap();
        let pack = of("pack int8 activations");
        for (cost, expected) in [
            (KernelCost::pack(Dtype::Int8), pack),
            (KernelCost::pack(Dtype::Fp16), of("pack f16 activations")),
            // Two rows of nibbles for one of bytes.
            (
                KernelCost::pack(Dtype::Int4),
                of("split into nibbles and pack") / 2.0,
            ),
            (
                KernelCost::unpack(MatmulType::Int8ToInt32, UnpackTo::Result),
                of("unpack int32, dequantise"),
            ),
            (
                KernelCost::unpack(MatmulType::Int8ToInt32, UnpackTo::CachedSum),
                of("unpack int32, add"),
            ),
            (
                KernelCost::unpack(MatmulType::Int4ToInt16, UnpackTo::Sum),
                of("unpack int16 to int32"),
            ),
            (
                KernelCost::round(Dtype::Fp16),
                of("f32 to f16 and pack") - of("pack f16 activations"),
            ),
            (
                KernelCost::round(Dtype::Int8),
                of("absmax, quantise and pack") - pack,
            ),
            // A block of 4096 has 12 stages.
            (
                KernelCost::ROTATION_STAGE,
                of("Hadamard, blocks of 4096") / 12.0,
            ),
        ] {
            let difference = f64::from(cost.centi_instructions) - expected;
            assert!(difference.abs() <= 0.51, "{cost:?}, counted: {expected}");
        }
    }

    #[test]
    fn counts_are_the_second_column() {
        let table = "Counted with.\n\n| kernel | instructions | bytes |\n|---|---|---|\n\
                     | a | 0.50 | 2.0 |\n| b, c | 3.25 | 4.0 |\n";
        let counted = KernelInstructions::in_table(table);
        assert_eq!(counted.of("a").unwrap(), 0.5);
        assert_eq!(counted.of("b, c").unwrap(), 3.25);
        assert!(counted.of("kernel").is_err());
    }
}
