// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program in place of a recorded one, and the witness that its job ran.
//!
//! The driver reports a dropped job as completed. So the job gets one more task, the witness:
//! a matmul of zeros that overwrites other bytes. The driver starts a task after the end of
//! the task before, so the witness shows that all tasks ran.

use rknpu_regcmd::{Binding, BufferId, ChipProfile, Iova, MatmulTask, Program, TaskType, Word};
use rocket_uapi::{Bo, ByteLen, Deadline, Device, Error, PAGE_BYTES, sys};

use super::error::ReplayError;
use super::place::WAIT;
use crate::capture::Capture;

/// A program to run in place of a recorded one.
#[derive(Clone, Copy, Debug)]
pub struct ProgramChange<'a> {
    /// Index of the job in the capture.
    pub job: usize,
    /// Index of the program in the job.
    pub program: usize,
    /// The words to run.
    pub words: &'a [Word],
}

impl ProgramChange<'_> {
    /// Checks that the capture has the program, and that one task can have the words.
    pub(super) fn check(&self, capture: &Capture) -> Result<(), ReplayError> {
        let (job, program) = (self.job, self.program);
        let jobs = capture.jobs();
        let recorded = jobs.get(job).ok_or(ReplayError::NoJob {
            job,
            jobs: jobs.len(),
        })?;
        if program >= recorded.tasks.len() {
            return Err(ReplayError::NoProgram {
                job,
                program,
                programs: recorded.tasks.len(),
            });
        }
        if self.words.len() > Program::WORDS_MAX {
            return Err(self.too_long());
        }
        Ok(())
    }

    fn too_long(&self) -> ReplayError {
        ReplayError::ProgramLength {
            words: self.words.len(),
            max: Program::WORDS_MAX,
        }
    }
}

/// Offset of the witness's result from its operands.
const RESULT: usize = PAGE_BYTES;
/// Bytes of the result's page, and slack: a feature fetch may read that far beyond its end
/// (E-over-read).
const BEHIND: usize = PAGE_BYTES + ChipProfile::RK3588.cbuf_bank_bytes as usize;
/// Fill value of the result, which no sum of zeros has.
const UNWRITTEN: u8 = 0xaa;
/// Programs begin at multiples of this many bytes.
const ALIGNMENT: usize = 64;
const WORD_BYTES: usize = size_of::<Word>();

const BUFFER: BufferId = BufferId(0);

/// A matmul of zeros, with its operands at this offset. A and B are the same bytes.
fn witness(operands: u32) -> MatmulTask {
    MatmulTask {
        ty: TaskType::Int8ToInt32,
        m: 4,
        k: 32,
        n: 32,
        a: BUFFER.at(operands),
        b: BUFFER.at(operands),
        c: BUFFER.at(operands + RESULT as u32),
    }
}

/// The words of the witness in a buffer object at `iova`, with its operands at this offset.
fn witness_words(iova: Iova, operands: u32) -> Option<Vec<Word>> {
    let program = witness(operands).program(&ChipProfile::RK3588).ok()?;
    let len = operands + (RESULT + PAGE_BYTES) as u32;
    let binding = Binding {
        id: BUFFER,
        iova,
        len,
    };
    Some(program.link(&[binding]).ok()?.words().to_vec())
}

/// The buffer object of a changed program and its witness.
#[derive(Debug)]
pub(super) struct ChangedJob {
    pub(super) bo: Bo,
    /// Offset of the witness's result.
    result: usize,
}

impl ChangedJob {
    /// Writes the changed program and the witness to a new buffer object, and makes `tasks`
    /// run them.
    pub(super) fn new(
        device: &Device,
        change: &ProgramChange<'_>,
        tasks: &mut Vec<sys::Task>,
    ) -> Result<Self, ReplayError> {
        // The NPU fetches one word behind a program.
        let room = |words: &[Word]| (size_of_val(words) + WORD_BYTES).next_multiple_of(ALIGNMENT);
        let at = room(change.words);
        let unplaced = witness_words(Iova(0), 0).ok_or(Error::Witness)?;
        let operands = (at + room(&unplaced)).next_multiple_of(PAGE_BYTES);
        let result = operands + RESULT;
        // `check` has limited the words, so these offsets are far below 2^31.
        let len = ByteLen::new(result + BEHIND).map_err(|_| change.too_long())?;
        let mut bo = device.alloc(len)?;
        let iova = bo.iova();
        let witness = witness_words(iova, operands as u32).ok_or(Error::Witness)?;
        let mut bytes = bo.write(Deadline::after(WAIT))?;
        for (offset, words) in [(0, change.words), (at, &witness)] {
            let to = bytes[offset..].as_chunks_mut::<WORD_BYTES>().0;
            for (to, word) in to.iter_mut().zip(words) {
                *to = word.bits().to_le_bytes();
            }
        }
        bytes[result..][..PAGE_BYTES].fill(UNWRITTEN);
        bytes.finish()?;
        let task = |at: usize, words: &[Word]| sys::Task {
            regcmd: iova.0 + at as u32,
            regcmd_count: words.len() as u32,
        };
        tasks[change.program] = task(0, change.words);
        tasks.push(task(at, &witness));
        Ok(Self { bo, result })
    }

    /// Whether the witness ran, in a job that has ended.
    pub(super) fn has_run(&self) -> Result<bool, ReplayError> {
        let bytes = self.bo.read(Deadline::after(WAIT))?;
        let sums = &bytes[self.result..][..witness(0).c_bytes() as usize];
        Ok(sums.iter().all(|&byte| byte == 0))
    }
}
