// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a program on a core of the model's chip, started as the kernel driver would start it,
//! but without a driver.

use std::collections::BTreeMap;
use std::time::Duration;

use npu_capture::add_range;
use npu_model::driver::kick;
use rknpu_chip::{Bus, ChipOptions, Core, Diagnosis, Direction, Fault, Master};

use super::memory::ProgramMemory;
use super::{AccessReport, ProgramRun};

/// Most faults that are reported; a runaway program causes millions.
const FAULTS_KEPT: usize = 8;

/// Runs `words` words of the program in `memory` on core `index` after power-up, for at most
/// `budget` of modelled time.
pub(crate) fn run(
    memory: &mut ProgramMemory,
    words: u32,
    options: &ChipOptions,
    index: u32,
    budget: Duration,
) -> ProgramRun {
    let program = (memory.program, words);
    let mut bus = Mapped {
        memory,
        faults: Vec::new(),
        accesses: BTreeMap::new(),
    };
    let mut core = Core::new(options);
    let kicked = kick(&mut core, index, program, &mut bus, budget);
    let completed = kicked.is_completed();
    let faults = bus.faults;
    let end = match (completed, faults.is_empty()) {
        (true, _) => "completed",
        (false, true) => "no completion interrupt: a kernel would kill the job",
        (false, false) => "stopped by an IOMMU fault: a kernel would kill the job",
    };
    let mut accesses = Vec::new();
    for ((master, direction), ranges) in bus.accesses {
        accesses.extend(ranges.into_iter().map(|(start, end)| AccessReport {
            master: master.to_string(),
            direction: format!("{direction:?}"),
            start,
            end,
        }));
    }
    let traps = kicked.outcome.diagnosis.iter().map(Diagnosis::to_string);
    ProgramRun {
        completed,
        end: end.to_owned(),
        interrupts: Some(kicked.raw_status),
        modelled_ns: u64::try_from(kicked.outcome.device_time.as_nanos()).ok(),
        events: faults.iter().map(Fault::to_string).chain(traps).collect(),
        accesses: Some(accesses),
        ..ProgramRun::default()
    }
}

/// The memory of a run, as the core's bus.
struct Mapped<'a> {
    memory: &'a mut ProgramMemory,
    faults: Vec<Fault>,
    /// Start to end of each range, by master and direction.
    accesses: BTreeMap<(Master, Direction), BTreeMap<u64, u64>>,
}

impl Mapped<'_> {
    /// Visits `len` bytes from `iova` on, region by region. `each` gets the bytes of memory
    /// and the number of bytes before them.
    fn walk(
        &mut self,
        (master, direction): (Master, Direction),
        iova: u32,
        len: usize,
        mut each: impl FnMut(&mut [u8], usize),
    ) -> Result<(), Fault> {
        let start = u64::from(iova);
        let ranges = self.accesses.entry((master, direction)).or_default();
        add_range(ranges, start..start + len as u64);
        let mut done = 0;
        while done < len {
            let address = start + done as u64;
            let Some(bytes) = self.memory.at_mut(address) else {
                let fault = Fault {
                    address,
                    direction,
                    master,
                };
                if self.faults.len() < FAULTS_KEPT {
                    self.faults.push(fault);
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
    fn read(&mut self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
        self.walk((master, Direction::Read), iova, out.len(), |bytes, at| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
        })
    }

    fn write(&mut self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault> {
        self.walk((master, Direction::Write), iova, data.len(), |bytes, at| {
            bytes.copy_from_slice(&data[at..at + bytes.len()]);
        })
    }
}
