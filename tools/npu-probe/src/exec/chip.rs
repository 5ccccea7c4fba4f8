// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program on a core of the model's chip, kicked off as the kernel driver
//! would, without a driver in between.

use std::cell::RefCell;
use std::sync::PoisonError;

use npu_model::driver::{is_completed, kick};
use npu_model::trace::Recorder;
use rknpu_chip::{Bus, Chip, ChipOptions, Diagnosis, Direction, Fault, Master};

use super::Outcome;
use super::memory::Memory;

/// Faults that are told; a runaway program makes millions.
const FAULTS_KEPT: usize = 8;

/// Why a program cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("there is no core {core}: this chip has {cores}, from 0 on")]
pub(crate) struct NoCore {
    core: u32,
    cores: usize,
}

/// Runs `words` words of the program in `memory` on a chip after power-up.
pub(crate) fn run(
    memory: &mut Memory,
    words: u32,
    options: &ChipOptions,
    core: u32,
) -> Result<Outcome, NoCore> {
    let chip = Chip::new(options);
    let cores = chip.cores();
    let Some(slot) = cores.get(core as usize) else {
        let cores = cores.len();
        return Err(NoCore { core, cores });
    };
    let program = (memory.program, words);
    let bus = Mapped {
        memory: RefCell::new(memory),
        faults: RefCell::default(),
        recorder: RefCell::default(),
    };
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    let raw_status = kick(&mut *slot, core, program, 1, &bus);
    let completed = is_completed(raw_status);
    let faults = bus.faults.into_inner();
    let end = match (completed, faults.is_empty()) {
        (true, _) => "completed",
        (false, true) => "no completion interrupt: a kernel would kill the job",
        (false, false) => "stopped by an IOMMU fault: a kernel would kill the job",
    };
    let traps = slot.diagnosis();
    let traps = traps.iter().map(Diagnosis::to_string);
    Ok(Outcome {
        completed,
        end: end.to_owned(),
        raw_status: Some(raw_status),
        device_time: Some(slot.device_time()),
        events: faults.iter().map(Fault::to_string).chain(traps).collect(),
        accesses: bus.recorder.into_inner().finish(),
        ..Outcome::default()
    })
}

/// The regions of a run, as the core sees them.
struct Mapped<'a> {
    memory: RefCell<&'a mut Memory>,
    faults: RefCell<Vec<Fault>>,
    recorder: RefCell<Recorder>,
}

impl Mapped<'_> {
    /// Goes through `len` bytes from `iova` on, region by region: `each` gets
    /// the bytes of memory and how many came before.
    fn walk(
        &self,
        (master, direction): (Master, Direction),
        iova: u32,
        len: usize,
        mut each: impl FnMut(&mut [u8], usize),
    ) -> Result<(), Fault> {
        let start = u64::from(iova);
        let accessed = start..start + len as u64;
        self.recorder.borrow_mut().note(master, direction, accessed);
        let mut memory = self.memory.borrow_mut();
        let mut done = 0;
        while done < len {
            let address = start + done as u64;
            let Some(bytes) = memory.at_mut(address) else {
                let fault = Fault {
                    address,
                    direction,
                    master,
                };
                let mut faults = self.faults.borrow_mut();
                if faults.len() < FAULTS_KEPT {
                    faults.push(fault);
                }
                return Err(fault);
            };
            let here = bytes.len().min(len - done);
            each(&mut bytes[..here], done);
            done += here;
        }
        Ok(())
    }
}

impl Bus for Mapped<'_> {
    fn read(&self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
        self.walk((master, Direction::Read), iova, out.len(), |bytes, at| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
        })
    }

    fn write(&self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault> {
        self.walk((master, Direction::Write), iova, data.len(), |bytes, at| {
            bytes.copy_from_slice(&data[at..at + bytes.len()]);
        })
    }
}
