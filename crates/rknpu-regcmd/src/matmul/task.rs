// SPDX-License-Identifier: MIT OR Apache-2.0
//! A matmul with packed operands: its rules, and the CBUF banks that it needs.

use super::error::MatmulError;
use super::options::{ProgramOptions, Reuse, ReuseRule};
use super::types::TaskType;
use crate::chip::{ATOM_BYTES, CBUF_ENTRY_BYTES, ChipProfile};
use crate::program::BufferRef;

/// How a task divides CBUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CbufSplit {
    /// Banks for features.
    pub data_banks: u32,
    /// Banks for weights.
    pub weight_banks: u32,
}

/// A matmul with packed and padded operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulTask {
    /// Types of operands and results.
    pub ty: TaskType,
    /// Rows of A and C: a multiple of 4.
    pub m: u32,
    /// Columns of A and B: a multiple of [`TaskType::k_multiple`].
    pub k: u32,
    /// Rows of B, columns of C: a multiple of [`TaskType::n_multiple`].
    pub n: u32,
    /// The cube of A.
    pub a: BufferRef,
    /// The weights B.
    pub b: BufferRef,
    /// Where the cube of C is written.
    pub c: BufferRef,
}

impl MatmulTask {
    /// Checks every rule, and divides CBUF.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self, chip: &ChipProfile) -> Result<CbufSplit, MatmulError> {
        let &Self { ty, m, k, n, .. } = self;
        // FEATURE_GRAINS asks for all rows and one more before computing starts.
        let rows_max = (chip.grains_max - 1) / chip.line_group * chip.line_group;
        for (size, value, multiple, max) in [
            ("M", m, chip.line_group, rows_max),
            ("K", k, ty.k_multiple(), chip.input_channels_max),
            ("N", n, ty.n_multiple(), chip.output_channels_max),
        ] {
            if value == 0 || !value.is_multiple_of(multiple) {
                return Err(MatmulError::Multiple {
                    size,
                    value,
                    multiple,
                    ty,
                });
            }
            if value > max {
                return Err(MatmulError::TooMany { size, value, max });
            }
        }
        let (bytes, max) = (self.kernel_bytes(), chip.kernel_bytes_max);
        if bytes > max {
            return Err(MatmulError::KernelTooLarge { k, bytes, max });
        }
        for (operand, at) in [("A", self.a), ("B", self.b), ("C", self.c)] {
            if !at.offset.is_multiple_of(ATOM_BYTES) {
                let offset = at.offset;
                return Err(MatmulError::Unaligned { operand, offset });
            }
        }
        self.divide(chip)
    }

    /// Checks the rules and divides CBUF, with the spare bank if the options ask for it.
    pub(super) fn split(
        &self,
        options: &ProgramOptions,
        chip: &ChipProfile,
    ) -> Result<CbufSplit, MatmulError> {
        let split = self.check(chip)?;
        Ok(if options.spare_data_bank {
            self.with_spare_data_bank(split, chip)
        } else {
            split
        })
    }

    /// The operands that this task may use from CBUF if it follows `before` in the
    /// same job, and so on the same core.
    ///
    /// Both tasks must divide CBUF alike. Otherwise the operand lies elsewhere, and
    /// the task uses what lies in its place, without an error (E-reuse). CBUF keeps
    /// all of A. It keeps B only if B fits its banks with one to spare
    /// (E-reuse-spare-bank).
    ///
    /// # Errors
    /// The rule that one of the tasks breaks.
    pub fn reuse_after(
        &self,
        before: &Self,
        options: &ProgramOptions,
        chip: &ChipProfile,
    ) -> Result<Reuse, MatmulError> {
        let split = self.split(options, chip)?;
        let sizes = |task: &Self| [task.m, task.k, task.n];
        let allowed = match options.reuse {
            ReuseRule::Never => false,
            ReuseRule::EqualResident => {
                sizes(self) == sizes(before) && self.weights_fit(split.weight_banks, chip)
            }
            ReuseRule::Always => true,
        };
        let may_reuse = allowed
            && before.split(options, chip)? == split
            && (self.ty.operand(), self.k) == (before.ty.operand(), before.k);
        Ok(Reuse {
            features: may_reuse && (self.a, self.m) == (before.a, before.m),
            weights: may_reuse
                && (self.b, self.n) == (before.b, before.n)
                && self.weights_fit(split.weight_banks - 1, chip),
        })
    }

    /// Bytes of A as packed; saturates for sizes far beyond the rules.
    #[must_use]
    pub fn a_bytes(&self) -> u64 {
        self.operand_bytes(self.m)
    }

    /// Bytes of B as packed; saturates for sizes far beyond the rules.
    #[must_use]
    pub fn b_bytes(&self) -> u64 {
        self.operand_bytes(self.n)
    }

    /// Bytes of C as written; saturates for sizes far beyond the rules.
    #[must_use]
    pub fn c_bytes(&self) -> u64 {
        (u64::from(self.m) * u64::from(self.n)).saturating_mul(self.ty.out_bytes().into())
    }

    fn operand_bytes(&self, rows: u32) -> u64 {
        let elements = u64::from(rows) * u64::from(self.k);
        elements.saturating_mul(self.ty.operand().bits().into()) / 8
    }

    /// Bytes of one row of A, or one kernel. [`Self::check`] limits K before it uses
    /// this.
    pub(super) fn kernel_bytes(&self) -> u32 {
        self.operand_bytes(1) as u32
    }

    /// CBUF entries of a line.
    pub(super) fn entries(&self) -> u32 {
        self.kernel_bytes().div_ceil(CBUF_ENTRY_BYTES)
    }

    fn divide(&self, chip: &ChipProfile) -> Result<CbufSplit, MatmulError> {
        // Each line begins at a new entry.
        let lines = u64::from(self.m) * u64::from(self.entries() * CBUF_ENTRY_BYTES);
        let data_banks = lines.div_ceil(chip.cbuf_bank_bytes.into()) as u32;
        // At least one bank must remain for the weights.
        let max = chip.cbuf_banks - 1;
        if data_banks > max {
            let (m, k, needed) = (self.m, self.k, data_banks);
            return Err(MatmulError::DataBanks { m, k, needed, max });
        }
        let weight_banks = chip.cbuf_banks - data_banks;
        let needed = self.weight_banks_needed(chip);
        if weight_banks < needed {
            return Err(MatmulError::WeightBanks {
                data_banks,
                needed,
                left: weight_banks,
            });
        }
        Ok(CbufSplit {
            data_banks,
            weight_banks,
        })
    }

    /// Banks that the weights need while they stream through CBUF.
    fn weight_banks_needed(&self, chip: &ChipProfile) -> u32 {
        let resident = chip.resident_kernels.max(self.ty.n_multiple()).min(self.n);
        (resident * self.kernel_bytes())
            .div_ceil(chip.cbuf_bank_bytes)
            .max(chip.weight_banks_min)
    }

    /// Whether CBUF holds all of A and B while the task runs, with a bank to spare if
    /// `spare`. False for a task that breaks a rule.
    #[must_use]
    pub fn fits_cbuf(&self, spare: bool, chip: &ChipProfile) -> bool {
        self.check(chip)
            .is_ok_and(|split| self.weights_fit(split.weight_banks - u32::from(spare), chip))
    }

    /// Whether all of B fits `banks` banks.
    fn weights_fit(&self, banks: u32, chip: &ChipProfile) -> bool {
        self.b_bytes() <= u64::from(banks) * u64::from(chip.cbuf_bank_bytes)
    }

    /// `split` with one bank more for features, if the weights keep what they need:
    /// all that they fill if they stay in CBUF, else what streaming needs.
    fn with_spare_data_bank(&self, split: CbufSplit, chip: &ChipProfile) -> CbufSplit {
        let left = split.weight_banks - 1;
        let streams = !self.weights_fit(split.weight_banks, chip);
        let keeps = streams || self.weights_fit(left, chip);
        if keeps && left >= self.weight_banks_needed(chip) {
            return CbufSplit {
                data_banks: split.data_banks + 1,
                weight_banks: left,
            };
        }
        split
    }
}
