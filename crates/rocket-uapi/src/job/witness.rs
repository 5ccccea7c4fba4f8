// SPDX-License-Identifier: MIT OR Apache-2.0
//! The witness page of a job: a buffer object of one page that carries the job's fence and
//! the proof that the whole job ran.
//!
//! Each job lists a separate page as written, so the page carries only that job's fence.
//! PREP_BO maintains the caches of a whole object, even while it is busy: here one page, on
//! an output the whole output.
//!
//! The page also holds a program, the **witness**: the smallest matmul, whose results
//! overwrite zeroes. Its operands lie in a buffer object of the file that no later PREP_BO
//! or FINI_BO touches, with slack behind them. It has the precision of the job's last
//! task, since nobody is known to have mixed precisions in a job (E-types-mixed).
//!
//! The witness is the last task of its job. The driver starts a task at the interrupt of
//! the task before, so the witness runs after all others. A kill drops the tasks that have
//! not run. So the result is there if and only if the whole job ran.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rknpu_regcmd::{
    ATOM_BYTES, Binding, BufferId, ChipProfile, Iova, MatmulTask, Program, TaskType, Word,
};

use crate::bo::Bo;
use crate::device::Device;
use crate::error::Error;
use crate::fences::BufferAccess;
use crate::program_bo::store_words;
use crate::sync_file::SyncFile;
use crate::sys::Task;
use crate::units::{ByteLen, Deadline, Handle, PAGE_BYTES};

/// Offset of the result in the page; the program's words lie before it.
const C_OFFSET: usize = 3 << 10;
/// Offset of operand B in the page of operands; A lies before it.
const B_OFFSET: usize = 1 << 10;
/// Slack behind the operands: a feature fetch may read that far beyond its end
/// (E-over-read).
const SLACK: usize = ChipProfile::RK3588.cbuf_bank_bytes as usize;

const PAGE: BufferId = BufferId(0);
const OPERANDS: BufferId = BufferId(1);

/// The smallest legal matmul of this precision, in the form that ran on the mainline driver
/// (E-form-b-mainline).
const fn smallest(ty: TaskType) -> MatmulTask {
    let (ty, n) = match ty {
        TaskType::Int8ToInt32 => (ty, 32),
        TaskType::Int4ToInt16 => (ty, 64),
        TaskType::Fp16ToFp32 | TaskType::Fp16ToFp16 => (TaskType::Fp16ToFp32, 16),
    };
    MatmulTask {
        ty,
        m: 4,
        k: 32,
        n,
        a: OPERANDS.at(0),
        b: OPERANDS.at(B_OFFSET as u32),
        c: PAGE.at(C_OFFSET as u32),
    }
}

/// 1.0 in FP16, which fills both operands, so that their layout does not matter. As integers
/// its bytes are not all zero either.
const ONE: [u8; 2] = 0x3c00_u16.to_le_bytes();

/// The witness page of a job.
#[derive(Debug)]
pub(crate) struct Witness {
    bo: Bo,
    ty: TaskType,
    /// Its program.
    pub(super) task: Task,
    /// The buffer object of the operands.
    pub(super) operands: Handle,
    /// Whether the page was exported. Then it must be closed soon, because of a kernel bug.
    exported: AtomicBool,
}

impl Witness {
    /// Takes an idle page of the file, or makes a new one. Its result is cleared.
    pub(super) fn take(device: &Device, ty: TaskType) -> Result<Self, Error> {
        let witness = WitnessProgram::get(ty)?;
        let (operands, ones) = operands(device)?;
        let idle = device.witnesses().take(ty);
        let (mut bo, is_new) = match idle {
            Some(raw) => (Bo::from_raw(device, raw), false),
            None => (device.alloc(ByteLen::new(PAGE_BYTES)?)?, true),
        };
        Error::check_program_address(bo.iova())?;
        let iova = bo.iova();
        let mut page = bo.write(Deadline::FOREVER)?;
        if is_new {
            store_words(&mut page[..C_OFFSET], &witness.at(iova, ones));
        } else {
            page[C_OFFSET..].fill(0);
        }
        page.finish()?;
        let task = Task {
            regcmd: iova.0,
            regcmd_count: witness.program.words().len() as u32,
        };
        Ok(Self {
            bo,
            ty,
            task,
            operands,
            exported: AtomicBool::new(false),
        })
    }

    /// Returns the page of an ended job to the file, unless it was exported or is not synced.
    pub(super) fn give_back(self) {
        if !self.exported.load(Ordering::Acquire) && self.bo.is_synced() {
            let device = self.bo.device().clone();
            device.witnesses().idle.push((self.ty, self.bo.into_raw()));
        }
    }

    pub(super) fn handle(&self) -> Handle {
        self.bo.handle()
    }

    /// Notes that the page's job is about to be submitted.
    pub(super) fn note_writer(&self) {
        self.bo.note_writer();
    }

    /// Whether the witness ran, in a job that has ended.
    pub(super) fn is_written(&self) -> Result<bool, Error> {
        let page = self.bo.read(Deadline::FOREVER)?;
        let atom = &page[WitnessProgram::get(self.ty)?.atom..][..ATOM_BYTES as usize];
        Ok(atom.iter().any(|&byte| byte != 0))
    }

    /// Whether the driver is known to have accepted the job. Call it right after SUBMIT.
    pub(super) fn was_accepted(&self) -> bool {
        let accepted = self.bo.device().was_accepted(self.handle(), self.bo.len());
        accepted.unwrap_or_else(|error| {
            // Treat the job as not seen by the driver.
            tracing::debug!(%error, "PREP_BO of a job's page failed");
            false
        })
    }

    pub(super) fn wait(&self, until: Deadline) -> Result<(), Error> {
        self.bo.device().prep(self.handle(), self.bo.len(), until)
    }

    pub(super) fn fence(&self) -> Result<SyncFile, Error> {
        self.exported.store(true, Ordering::Release);
        self.bo.fence(BufferAccess::Read)
    }

    /// Makes the job wait for `fence`: a job waits for all fences of the BOs that it
    /// writes. The fence is a reader's, so PREP_BO does not wait for it.
    pub(super) fn hold_for(&self, fence: &SyncFile) -> Result<(), Error> {
        self.exported.store(true, Ordering::Release);
        self.bo.add_reader(fence)
    }
}

/// Handle and address of the file's operands, which the file's first job creates. They stay
/// mapped until the file is closed.
fn operands(device: &Device) -> Result<(Handle, Iova), Error> {
    let mut kept = device.witnesses();
    if let Some(operands) = &kept.operands {
        return Ok((operands.handle, operands.iova));
    }
    let mut bo = device.alloc(ByteLen::new(PAGE_BYTES + SLACK)?)?;
    Error::check_program_address(bo.iova())?;
    let mut ones = bo.write(Deadline::FOREVER)?;
    for one in ones[..PAGE_BYTES].as_chunks_mut().0 {
        *one = ONE;
    }
    ones.finish()?;
    let operands = kept.operands.insert(bo.into_raw());
    Ok((operands.handle, operands.iova))
}

/// The witness: the register program at the end of each job whose last task has this type, for
/// predictions of a job's time. `None` if it cannot be built; a test excludes that.
#[must_use]
pub fn witness_program(ty: TaskType) -> Option<Program> {
    smallest(ty).program(&ChipProfile::RK3588).ok()
}

/// Address of the operands when the witness is linked; its page is at 0.
const BEHIND: Iova = Iova(PAGE_BYTES as u32);

/// The buffers that a witness may access.
fn places(page: Iova, operands: Iova) -> [Binding; 2] {
    [(PAGE, page), (OPERANDS, operands)].map(|(id, iova)| Binding {
        id,
        iova,
        len: PAGE_BYTES as u32,
    })
}

/// The witness, not linked: each page gets a copy of its words with other addresses. It was
/// linked once, to prove that it links.
struct WitnessProgram {
    program: Program,
    /// Offset in the page of the atom that the witness writes last.
    atom: usize,
}

impl WitnessProgram {
    /// The witness, if it links; a test excludes the error.
    fn get(ty: TaskType) -> Result<&'static Self, Error> {
        type Linked = LazyLock<Option<WitnessProgram>>;
        // Linked once, because computing the extents takes a while.
        static INT8: Linked = Linked::new(|| WitnessProgram::link(TaskType::Int8ToInt32));
        static INT4: Linked = Linked::new(|| WitnessProgram::link(TaskType::Int4ToInt16));
        static FP16: Linked = Linked::new(|| WitnessProgram::link(TaskType::Fp16ToFp32));
        let program = match ty {
            TaskType::Int8ToInt32 => &INT8,
            TaskType::Int4ToInt16 => &INT4,
            TaskType::Fp16ToFp32 | TaskType::Fp16ToFp16 => &FP16,
        };
        program.as_ref().ok_or(Error::Witness)
    }

    fn link(ty: TaskType) -> Option<Self> {
        let program = witness_program(ty)?;
        let linked = program.link(&places(Iova(0), BEHIND)).ok()?;
        let atom = linked.last_written_atom()?.0 as usize;
        Some(Self { program, atom })
    }

    /// Its words for a page at `page` and operands at `operands`.
    fn at(&self, page: Iova, operands: Iova) -> Vec<Word> {
        let mut words = self.program.words().to_vec();
        for &(index, to) in self.program.relocations() {
            let start = match to.buffer {
                OPERANDS => operands.0,
                _ => page.0,
            };
            let word = words[index];
            words[index] = Word::new(word.target(), word.offset(), start + to.offset);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use rknpu_regcmd::Direction;

    use super::*;
    use crate::program_bo::witness_type;

    #[test]
    fn the_witness_stays_in_its_part_of_any_page() {
        for ty in TaskType::ALL {
            stays(ty);
        }
    }

    fn stays(ty: TaskType) {
        let witness = WitnessProgram::get(ty).unwrap();
        assert_eq!(witness_type(witness.program.words()), smallest(ty).ty);
        assert!(size_of_val(witness.program.words()) <= C_OFFSET);
        assert!((C_OFFSET..=PAGE_BYTES - ATOM_BYTES as usize).contains(&witness.atom));
        let last = 0_u32.wrapping_sub(PAGE_BYTES as u32);
        for (page, operands) in [(0, last), (PAGE_BYTES as u32, 0), (last, 1 << 20)] {
            let bindings = places(Iova(page), Iova(operands));
            let linked = witness_program(ty).unwrap().link(&bindings).unwrap();
            assert_eq!(linked.words(), witness.at(Iova(page), Iova(operands)));
            let of = |start: u32, offset: usize| u64::from(start) + offset as u64;
            for extent in linked.extents() {
                let (start, end) = match extent.engine.direction() {
                    Direction::Read => (of(operands, 0), of(operands, PAGE_BYTES)),
                    Direction::Write => (of(page, C_OFFSET), of(page, PAGE_BYTES)),
                };
                assert!(start <= extent.start && extent.end <= end, "{extent}");
            }
        }
    }
}
