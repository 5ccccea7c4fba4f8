// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of a job: what the driver is asked about, and what can prove that
//! all of the job ran.
//!
//! Each job lists one page of its own as written, so that the job's fence, and
//! no other, is on it. PREP_BO of a page passes a page through the caches, where
//! that of an output passes the whole output, also while it is busy.
//!
//! The page holds a program too, the **witness**: the smallest product of ones,
//! into zeroes. The ones are the file's, in a buffer object that no call passes through
//! the caches any more, with room behind them for a fetch that reads on. As the last task of a job it runs when all others have ended
//! (the driver starts a task at the interrupt of the one before it), and a kill
//! drops what has not run. So its result is there if the whole job ran, and
//! cannot be there otherwise.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rknpu_regcmd::{
    ATOM_BYTES, Binding, BufferId, ChipProfile, Iova, MatmulTask, MatmulType, Program, Word,
};

use super::idle::{IdleWitness, Place};
use crate::bo::Bo;
use crate::device::Device;
use crate::error::{Error, ProgramError};
use crate::fences::BufferAccess;
use crate::program_bo::store_words;
use crate::raw_job::RawTask;
use crate::sync_file::SyncFile;
use crate::units::{ByteLen, Deadline, Handle, PAGE_BYTES};

/// The page's layout: words, then the result.
const C_OFFSET: usize = 3 << 10;
/// The layout of the operands, which are all ones: A, then B, in a page.
const B_OFFSET: usize = 1 << 10;
/// What lies behind them: as far as a feature fetch may read on (E-over-read).
const SLACK: usize = ChipProfile::RK3588.cbuf_bank_bytes as usize;

const PAGE: BufferId = BufferId(0);
const OPERANDS: BufferId = BufferId(1);

/// The smallest legal FP16 matmul, in the form that ran on the mainline driver
/// (E-form-b-mainline).
const PRODUCT: MatmulTask = MatmulTask {
    ty: MatmulType::Fp16ToFp32,
    m: 4,
    k: 32,
    n: 16,
    a: OPERANDS.at(0),
    b: OPERANDS.at(B_OFFSET as u32),
    c: PAGE.at(C_OFFSET as u32),
};

/// 1.0 in FP16: all elements of both operands, so that no layout matters.
const ONE: [u8; 2] = 0x3c00_u16.to_le_bytes();

/// The page of a job.
#[derive(Debug)]
pub(crate) struct Witness {
    bo: Bo,
    place: Place,
    /// Whether it was exported: the kernel then wants it closed soon.
    exported: AtomicBool,
}

impl Witness {
    /// One that the file keeps, or a new one, without a result.
    pub(super) fn take(device: &Device) -> Result<Self, Error> {
        let idle = device.idle_witnesses().pop();
        let Some(IdleWitness { raw, place }) = idle else {
            return Self::new(device);
        };
        let mut witness = Self {
            bo: Bo::from_raw(device, raw),
            place,
            exported: AtomicBool::new(false),
        };
        let mut page = witness.bo.write(Deadline::FOREVER)?;
        page[C_OFFSET..].fill(0);
        page.finish()?;
        Ok(witness)
    }

    fn new(device: &Device) -> Result<Self, Error> {
        let (operands, ones) = operands(device)?;
        let mut bo = device.alloc(ByteLen::new(PAGE_BYTES)?)?;
        ProgramError::check_address(bo.iova())?;
        let program = LinkedWitness::get().ok_or(ProgramError::Witness)?;
        let words = program.at(bo.iova(), ones);
        let mut page = bo.write(Deadline::FOREVER)?;
        store_words(&mut page[..C_OFFSET], &words);
        page.finish()?;
        let task = RawTask {
            regcmd: bo.iova(),
            words: words.len() as u32,
        };
        Ok(Self {
            bo,
            place: Place {
                task,
                operands,
                atom: program.atom,
            },
            exported: AtomicBool::new(false),
        })
    }

    /// Gives the page of a job that has ended back to the file.
    pub(super) fn give_back(self) {
        if !self.exported.load(Ordering::Acquire) && self.bo.is_synced() {
            let device = self.bo.device().clone();
            let (raw, place) = (self.bo.into_raw(), self.place);
            device.idle_witnesses().push(IdleWitness { raw, place });
        }
    }

    pub(super) fn handle(&self) -> Handle {
        self.bo.handle()
    }

    /// The buffer object that it reads.
    pub(super) fn operands(&self) -> Handle {
        self.place.operands
    }

    /// The witness as a task of the job.
    pub(super) fn task(&self) -> RawTask {
        self.place.task
    }

    /// Its job is about to be submitted.
    pub(super) fn note_writer(&self) {
        self.bo.note_writer();
    }

    /// Whether the witness ran, in a job that has ended.
    pub(super) fn is_written(&self) -> Result<bool, Error> {
        let page = self.bo.read(Deadline::FOREVER)?;
        let atom = page[self.place.atom..].iter().take(ATOM_BYTES as usize);
        Ok(atom.copied().any(|byte| byte != 0))
    }

    /// Whether the driver is known to have taken the job. For right after
    /// SUBMIT.
    pub(super) fn was_accepted(&self) -> bool {
        let accepted = self.bo.device().was_accepted(self.handle(), self.bo.len());
        accepted.unwrap_or_else(|error| {
            // Then the job counts as one that was not seen.
            tracing::debug!(%error, "PREP_BO of a job's page failed");
            false
        })
    }

    /// Waits for the end of the job.
    pub(super) fn wait(&self, until: Deadline) -> Result<(), Error> {
        self.bo.device().prep(self.handle(), self.bo.len(), until)
    }

    /// The end of the job.
    pub(super) fn fence(&self) -> Result<SyncFile, Error> {
        self.exported.store(true, Ordering::Release);
        self.bo.fence(BufferAccess::Read)
    }

    /// Has the job wait for `fence`: a job waits for all fences on what it
    /// writes. As a reader's, it is not among those that PREP_BO looks at.
    pub(super) fn hold_for(&self, fence: &SyncFile) -> Result<(), Error> {
        self.exported.store(true, Ordering::Release);
        self.bo.add_reader(fence)
    }
}

/// The file's operands, and where they are; makes them for its first job. They stay until
/// the file is closed, and so are mapped while any of its jobs runs.
fn operands(device: &Device) -> Result<(Handle, Iova), Error> {
    let mut kept = device.witness_operands();
    if let Some(operands) = &*kept {
        return Ok((operands.handle, operands.iova));
    }
    let mut bo = device.alloc(ByteLen::new(PAGE_BYTES + SLACK)?)?;
    ProgramError::check_address(bo.iova())?;
    let mut ones = bo.write(Deadline::FOREVER)?;
    for one in ones[..PAGE_BYTES].as_chunks_mut().0 {
        *one = ONE;
    }
    ones.finish()?;
    let operands = kept.insert(bo.into_raw());
    Ok((operands.handle, operands.iova))
}

/// The register program that ends each job: a prediction of a job's time counts it. `None` if there is none, which a test excludes.
#[must_use]
pub fn witness_program() -> Option<Program> {
    let chip = &ChipProfile::RK3588;
    PRODUCT.program(chip).ok()
}

/// Operands at the second page, for a witness in the first.
const BEHIND: Iova = Iova(PAGE_BYTES as u32);

/// What a witness may touch.
fn places(page: Iova, operands: Iova) -> [Binding; 2] {
    [(PAGE, page), (OPERANDS, operands)].map(|(id, iova)| Binding {
        id,
        iova,
        len: PAGE_BYTES as u32,
    })
}

/// The witness as it is linked once; each page gets a copy of its words.
struct LinkedWitness {
    /// Its words, with offsets in their buffers in place of addresses.
    words: Vec<Word>,
    /// Indices of the words that hold an address, and the buffer that it is in.
    addresses: Vec<(usize, BufferId)>,
    /// Offset of the atom that it writes last.
    atom: usize,
}

impl LinkedWitness {
    /// `None` if there is none, which a test excludes.
    fn get() -> Option<&'static Self> {
        // Linked once, since proving what a program touches takes a while.
        static PROGRAM: OnceLock<Option<LinkedWitness>> = OnceLock::new();
        PROGRAM.get_or_init(Self::link).as_ref()
    }

    fn link() -> Option<Self> {
        let program = witness_program()?;
        let linked = program.link(&places(Iova(0), BEHIND)).ok()?;
        let relocations = program.relocations().iter();
        let addresses: Vec<_> = relocations.map(|(index, to)| (*index, to.buffer)).collect();
        let mut words = linked.words().to_vec();
        for (index, _) in addresses.iter().filter(|(_, buffer)| *buffer == OPERANDS) {
            let word = words[*index];
            let offset = word.value() - BEHIND.0;
            words[*index] = Word::new(word.target(), word.offset(), offset);
        }
        Some(Self {
            words,
            addresses,
            atom: linked.last_written_atom()?.0 as usize,
        })
    }

    /// Its words in a page at `page`, with operands at `operands`.
    fn at(&self, page: Iova, operands: Iova) -> Vec<Word> {
        let mut words = self.words.clone();
        for &(index, buffer) in &self.addresses {
            let word = words[index];
            let start = match buffer {
                OPERANDS => operands.0,
                _ => page.0,
            };
            words[index] = Word::new(word.target(), word.offset(), word.value() + start);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use rknpu_regcmd::Direction;

    use super::*;

    #[test]
    fn the_witness_stays_in_its_part_of_any_page() {
        let program = LinkedWitness::get().unwrap();
        assert!(size_of_val(&*program.words) <= C_OFFSET);
        assert!((C_OFFSET..=PAGE_BYTES - ATOM_BYTES as usize).contains(&program.atom));
        let last = 0_u32.wrapping_sub(PAGE_BYTES as u32);
        for (page, operands) in [(0, last), (PAGE_BYTES as u32, 0), (last, 1 << 20)] {
            let bindings = places(Iova(page), Iova(operands));
            let linked = witness_program().unwrap().link(&bindings).unwrap();
            assert_eq!(linked.words(), program.at(Iova(page), Iova(operands)));
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
