// SPDX-License-Identifier: MIT OR Apache-2.0
//! Register programs in a buffer object, from which the PC block fetches them.

use rknpu_regcmd::regs::cna;
use rknpu_regcmd::{Extent, LinkedProgram, Precision, Program, Register, TaskType, Word};

use crate::bo::{Bo, FrozenBo};
use crate::device::Device;
use crate::error::Error;
use crate::sys::Task;
use crate::units::{ByteLen, Deadline};

/// Alignment of each program, bytes: PC needs 16, other stacks use 64
/// (E-program-alignment).
const ALIGNMENT: usize = 64;

/// Linked programs in a frozen buffer object. Nobody can change the words any more, so the
/// ranges proven at linking stay valid.
#[derive(Clone, Debug)]
pub struct ProgramBo {
    bo: FrozenBo,
    programs: Vec<Placed>,
}

/// A program with its place in the buffer object.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    /// Address and number of its words.
    pub(crate) task: Task,
    /// The bytes that its DMA engines read and write, by NPU addresses.
    pub(crate) extents: Vec<Extent>,
    /// Type of the witness behind it.
    pub(crate) witness: TaskType,
}

impl ProgramBo {
    /// Puts `programs` into a new buffer object of `device`.
    ///
    /// # Errors
    /// `programs` is empty; a program is too long for the NPU; the device has no
    /// memory for them, or gives an address that the NPU cannot fetch from.
    pub fn new(device: &Device, programs: &[LinkedProgram]) -> Result<Self, Error> {
        Self::place(programs, |bytes| device.alloc(ByteLen::new(bytes)?))
    }

    /// Puts `programs` into a buffer object from `alloc`, which gets the length in bytes.
    /// The object may have been used before.
    ///
    /// # Errors
    /// As [`ProgramBo::new`]; errors of `alloc`; [`Error::MappingTooShort`] if the object
    /// is too small.
    pub fn place(
        programs: &[LinkedProgram],
        alloc: impl FnOnce(usize) -> Result<Bo, Error>,
    ) -> Result<Self, Error> {
        if programs.is_empty() {
            return Err(Error::NoProgram);
        }
        for (index, program) in programs.iter().enumerate() {
            let words = program.words().len();
            if words > Program::WORDS_MAX {
                return Err(Error::TooManyWords { index, words });
            }
        }
        let end = programs.iter().fold(0, end_of);
        let mut bo = alloc(end)?;
        Error::check_program_address(bo.iova())?;
        let (base, handle) = (bo.iova().0, bo.handle());
        let len = ByteLen::new(end)?;
        let mut guard = bo.write(Deadline::FOREVER)?;
        let mut placed = Vec::with_capacity(programs.len());
        let mut offset = 0;
        for program in programs {
            let end = end_of(offset, program);
            let mapped = guard.len();
            let room = guard.get_mut(offset..end).ok_or(Error::MappingTooShort {
                handle,
                mapped,
                len,
            })?;
            store_words(room, program.words());
            room[size_of_val(program.words())..].fill(0);
            placed.push(Placed {
                task: Task {
                    // Below 2 GiB, and the object ends below 4 GiB.
                    regcmd: base + offset as u32,
                    regcmd_count: program.words().len() as u32,
                },
                extents: program.extents().to_vec(),
                witness: witness_type(program.words()),
            });
            offset = end;
        }
        guard.finish()?;
        Ok(Self {
            bo: bo.freeze(),
            programs: placed,
        })
    }

    /// The number of programs in the buffer object.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.programs.len()
    }

    /// The buffer object that holds the programs.
    #[must_use]
    pub fn bo(&self) -> &FrozenBo {
        &self.bo
    }

    /// Returns the buffer object; `None` while a clone or a job has it.
    #[must_use]
    pub fn into_bo(self) -> Option<Bo> {
        self.bo.thaw().ok()
    }

    pub(crate) fn programs(&self) -> &[Placed] {
        &self.programs
    }
}

/// The end of the place of a program that lies at `offset`.
fn end_of(offset: usize, program: &LinkedProgram) -> usize {
    // PC fetches words in pairs, so a zero word follows each program: an odd program needs
    // it.
    let bytes = size_of_val(program.words()) + size_of::<Word>();
    (offset + bytes).next_multiple_of(ALIGNMENT)
}

/// Writes words at the start of `room`, little-endian, as PC fetches them.
pub(crate) fn store_words(room: &mut [u8], words: &[Word]) {
    for (bytes, word) in room.chunks_exact_mut(size_of::<Word>()).zip(words) {
        bytes.copy_from_slice(&word.bits().to_le_bytes());
    }
}

/// The type of the witness behind a program: of the same precision, if it has one.
pub(crate) fn witness_type(program: &[Word]) -> TaskType {
    let mut words = program.iter().rev();
    let precision = words.find(|word| cna::ConvCon1::INFO.is_written_by(**word));
    let precision = precision.map(|word| cna::ConvCon1::from_bits(word.value()).in_precision());
    match precision.map(Precision::from_code) {
        Some(Precision::Int8) => TaskType::Int8ToInt32,
        Some(Precision::Int4) => TaskType::Int4ToInt16,
        _ => TaskType::Fp16ToFp32,
    }
}
