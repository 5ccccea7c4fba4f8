// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matmuls whose A or C is a row-major matrix.
//!
//! The feature fetch walks A line by line (GROUP_LINE_OFF): a line is a row, its
//! atoms follow each other, and LINE_STRIDE is the pitch of rows. The writer puts the
//! atoms of a row next to each other. Its notch is the distance from the end of a
//! pixel's atom to the next row:
//!
//! ```text
//! A: atom (row, i) at  row * pitch + 16 * i          LINE_STRIDE = pitch / 16
//! C: atom (row, i) at  row * pitch + 16 * i          NOTCH = pitch / 16 - 1
//! ```
//!
//! Sources: E-row-major, for INT8 and 16-bit floats; E-line-pitch. In these sources a
//! cube is a line of pixels, here it is a column. The DPU gets the same stream of
//! pixels.

use super::error::MatmulError;
use super::options::{ProgramOptions, Reuse, ReuseRule};
use super::task::{CbufSplit, MatmulTask};
use super::types::MatmulType;
use crate::chip::{ATOM_BYTES, CBUF_ENTRY_BYTES, ChipProfile};

/// Longest pitch of lines that was measured to work, bytes (E-line-pitch).
const LINE_PITCH_MAX: u32 = 4096 * ATOM_BYTES;

/// Longest pitch of rows of a row-major C, bytes: the notch is a row's atoms less
/// one, in 13 bits.
pub const ROW_PITCH_MAX: u32 = (1 << 13) * ATOM_BYTES;

/// How the rows of A or C follow each other in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatrixLayout {
    /// A cube: atom (row, i) follows atom (row - 1, i).
    #[default]
    Cube,
    /// Row-major: each row is contiguous and follows the row before it.
    RowMajor {
        /// Bytes from one row to the next: whole atoms.
        pitch: u32,
    },
}

/// The layouts of A and C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layouts {
    /// Layout of A.
    pub a: MatrixLayout,
    /// Layout of C.
    pub c: MatrixLayout,
}

/// A matmul with the layouts of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaidOutTask {
    /// Sizes, type and buffers of the matmul.
    pub task: MatmulTask,
    /// The layouts of A and C.
    pub layouts: Layouts,
}

impl MatmulTask {
    /// This matmul with operands in these layouts.
    #[must_use]
    pub const fn laid_out(self, layouts: Layouts) -> LaidOutTask {
        LaidOutTask {
            task: self,
            layouts,
        }
    }
}

impl LaidOutTask {
    /// Checks every rule, and divides CBUF.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self, chip: &ChipProfile) -> Result<CbufSplit, MatmulError> {
        let split = self.task.check(chip)?;
        let MatmulTask { ty, m, k, n, .. } = self.task;
        if let MatrixLayout::RowMajor { pitch } = self.layouts.a {
            check_pitch("A", ty, pitch, self.task.kernel_bytes(), LINE_PITCH_MAX)?;
            let max = row_major_rows(ty, k);
            if m > max {
                return Err(MatmulError::RowMajorRows { m, k, max });
            }
        }
        if let MatrixLayout::RowMajor { pitch } = self.layouts.c {
            check_pitch("C", ty, pitch, n * ty.out_bytes(), ROW_PITCH_MAX)?;
        }
        Ok(split)
    }

    pub(super) fn split(
        &self,
        options: &ProgramOptions,
        chip: &ChipProfile,
    ) -> Result<CbufSplit, MatmulError> {
        let split = self.check(chip)?;
        Ok(if options.spare_data_bank {
            self.task.with_spare_data_bank(split, chip)
        } else {
            split
        })
    }

    /// The operands that this task may use from CBUF if it follows `before` in the
    /// same job, and so on the same core.
    ///
    /// Both tasks must divide CBUF alike. Otherwise the operand lies elsewhere, and
    /// the task uses what lies in its place, without an error (E-reuse). CBUF keeps
    /// all of A, if both fetch it in the same layout. It keeps B only if B fits its
    /// banks with one to spare (E-reuse-spare-bank).
    ///
    /// # Errors
    /// The rule that one of the tasks breaks.
    pub fn reuse_after(
        &self,
        before: &Self,
        options: &ProgramOptions,
        chip: &ChipProfile,
    ) -> Result<Reuse, MatmulError> {
        let (now, earlier) = (&self.task, &before.task);
        let split = self.split(options, chip)?;
        let sizes = |task: &MatmulTask| [task.m, task.k, task.n];
        let allowed = match options.reuse {
            ReuseRule::Never => false,
            ReuseRule::EqualResident => {
                sizes(now) == sizes(earlier) && now.weights_fit(split.weight_banks, chip)
            }
            ReuseRule::Always => true,
        };
        let alike = allowed
            && before.split(options, chip)? == split
            && (now.ty.operand(), now.k) == (earlier.ty.operand(), earlier.k);
        let rows = |of: &Self| (of.task.a, of.task.m, of.layouts.a);
        Ok(Reuse {
            features: alike && rows(self) == rows(before),
            weights: alike
                && (now.b, now.n) == (earlier.b, earlier.n)
                && now.weights_fit(split.weight_banks - 1, chip),
        })
    }

    /// GROUP_LINE_OFF, LINE_STRIDE and SURF_STRIDE of the feature fetch; strides in atoms.
    pub(super) const fn feature_walk(&self) -> (u32, u32, i32) {
        match self.layouts.a {
            // Groups of four lines of one atom. SURF_STRIDE does not count the group:
            // it is M atoms less four. M is at most 1020 here.
            MatrixLayout::Cube => (0, 4, self.task.m as i32 - 4),
            MatrixLayout::RowMajor { pitch } => (1, pitch / ATOM_BYTES, 0),
        }
    }

    /// Lines that must be in CBUF before computing starts.
    pub(super) fn grains(&self) -> u32 {
        let MatmulTask { ty, m, k, .. } = self.task;
        match self.layouts.a {
            // The values of the programs with which row-major INT8 was measured.
            MatrixLayout::RowMajor { .. } if ty == MatmulType::Int8ToInt32 => {
                const DEEP: u32 = 4096;
                const LINES_IF_DEEP: u32 = 30;
                const BYTES_AHEAD: u32 = 64 << 10;
                if k > DEEP && m >= 16 {
                    LINES_IF_DEEP.min(m + 1)
                } else {
                    BYTES_AHEAD.div_ceil(k).next_multiple_of(2).min(m + 1)
                }
            }
            // One line more than A has: all must be resident.
            _ => m + 1,
        }
    }

    /// DST_SURF_STRIDE and the notch of the writer, atoms.
    pub(super) const fn writer_walk(&self) -> (u32, u32) {
        match self.layouts.c {
            MatrixLayout::Cube => (self.task.m, 0),
            MatrixLayout::RowMajor { pitch } => (1, pitch / ATOM_BYTES - 1),
        }
    }
}

/// Maximum rows of a tile whose A is row-major, as measured (E-row-major,
/// E-deep-int8-rows). For floats the rules of all matmuls are enough.
#[must_use]
pub fn row_major_rows(ty: MatmulType, k: u32) -> u32 {
    /// Eight banks.
    const BYTES: u32 = 256 << 10;
    const ROWS: u32 = 128;
    match (ty, k) {
        (MatmulType::Int4ToInt16, _) => 0,
        (MatmulType::Fp16ToFp32 | MatmulType::Fp16ToFp16, _) => u32::MAX,
        (MatmulType::Int8ToInt32, 3073..4096) => 4,
        (MatmulType::Int8ToInt32, 0..=4096) => {
            // Each line begins at a new entry.
            let line = k.next_multiple_of(CBUF_ENTRY_BYTES).max(1);
            (BYTES / line).min(ROWS)
        }
        (MatmulType::Int8ToInt32, 4097..=6144) => 32,
        (MatmulType::Int8ToInt32, 6145..=8192) => 16,
        (MatmulType::Int8ToInt32, _) => 1,
    }
}

fn check_pitch(
    operand: &'static str,
    ty: MatmulType,
    pitch: u32,
    row: u32,
    max: u32,
) -> Result<(), MatmulError> {
    if ty == MatmulType::Int4ToInt16 {
        return Err(MatmulError::RowMajorInt4(operand));
    }
    if !pitch.is_multiple_of(ATOM_BYTES) || pitch < row || pitch > max {
        return Err(MatmulError::Pitch {
            operand,
            pitch,
            row,
            max,
        });
    }
    Ok(())
}
