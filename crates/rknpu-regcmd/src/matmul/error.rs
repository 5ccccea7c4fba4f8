// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules of a matmul, each as the error that names it.

use thiserror::Error;

use super::types::TaskType;
use crate::field::FieldRangeError;

/// The rule that a matmul breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MatmulError {
    /// A size is not a multiple of the group that is computed together. M: the
    /// feature fetch takes four lines at a time; other heights gave wrong results,
    /// and the surface stride of known generators is wrong for them
    /// (E-surface-pitch). K: channel groups. N: kernel groups.
    #[error(
        "{size} = {value} is not a positive multiple of {multiple} ({ty:?}); {}",
        padding(size)
    )]
    Multiple {
        /// "M", "K" or "N".
        size: &'static str,
        /// The given size.
        value: u32,
        /// What the size must be a multiple of.
        multiple: u32,
        /// Types of the matmul.
        ty: TaskType,
    },
    /// A size does not fit its counter. FEATURE_GRAINS holds M + 1 lines, 10 bits;
    /// fewer corrupt matmuls of large K (E-grains). DATAIN_CHANNEL_REAL holds K, 14
    /// bits. The channel counters of the DPU hold N, 13 bits.
    #[error(
        "{size} = {value} is more than the {max} {}; split {size}",
        counted(size)
    )]
    TooMany {
        /// "M", "K" or "N".
        size: &'static str,
        /// The given size.
        value: u32,
        /// Maximum of the counter.
        max: u32,
    },
    /// One kernel, a row of B, is larger than a CBUF bank.
    #[error("K = {k} makes kernels of {bytes} bytes, more than a CBUF bank of {max}; split K")]
    KernelTooLarge {
        /// Columns of A.
        k: u32,
        /// Bytes of a kernel.
        bytes: u32,
        /// Bytes of a bank.
        max: u32,
    },
    /// The rows of A do not fit CBUF. Each row begins at an entry of 64 bytes;
    /// generators that forget this lose the last rows of some sizes
    /// (E-line-rounding).
    #[error("{m} rows of K = {k} take {needed} CBUF banks, of {max}; split M or K")]
    DataBanks {
        /// Rows of A.
        m: u32,
        /// Columns of A.
        k: u32,
        /// Banks that the rows take.
        needed: u32,
        /// Banks that are available for them.
        max: u32,
    },
    /// The banks that the rows of A leave cannot hold a block of kernels.
    #[error(
        "the rows of A take {data_banks} CBUF banks and leave {left}, but the weights \
         need {needed}; split M or K"
    )]
    WeightBanks {
        /// Banks that the rows take.
        data_banks: u32,
        /// Banks that the weights need.
        needed: u32,
        /// Banks that are left.
        left: u32,
    },
    /// An operand does not begin at an atom.
    #[error("operand {operand} begins {offset} bytes into its buffer, not a multiple of 16")]
    Unaligned {
        /// "A", "B" or "C".
        operand: &'static str,
        /// Bytes from the beginning of the buffer.
        offset: u32,
    },
    /// A value does not fit its register. On the known chips the rules above exclude
    /// this.
    #[error("the matmul does not fit the registers: {0}")]
    Register(#[from] FieldRangeError),
}

fn padding(size: &str) -> &'static str {
    match size {
        "M" => "pad the rows of A",
        "K" => "pad A and B with zeros",
        _ => "pad B with zeros",
    }
}

fn counted(size: &str) -> &'static str {
    match size {
        "M" => "rows that a task takes",
        _ => "channels that a task counts",
    }
}
