// SPDX-License-Identifier: MIT OR Apache-2.0
//! A core with a few buffer objects, and the results of its kicks.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::LazyLock;
use std::time::Duration;

use families::DPU_DONE;
use rknpu_chip::{
    Bus, ChipOptions, Contested, Core, Diagnosis, Direction, Fault, KickOutcome as Ran, Level,
    Master, NpuCore,
};
use rknpu_regcmd::Extent;
use rknpu_regcmd::regs::{self, pc};

/// Modelled time limit of a kick. A hostile program is computed up to the
/// limit, so this bounds the time of one input. A longer run would only repeat
/// the same work.
pub const TASK_LIMIT: Duration = Duration::from_micros(50);

/// Interrupts DMA_READ_ERROR and DMA_WRITE_ERROR.
const DMA_ERRORS: u32 = 0x3000;

/// Range of the bytes that a master touched, and their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    pub start: u64,
    pub end: u64,
    pub bytes: u64,
}

/// All accesses of a kick, by master and whether it writes.
pub type Accesses = BTreeMap<(Master, bool), Touched>;

/// Adds an access of `len` bytes.
pub fn note(
    accesses: &mut Accesses,
    (master, direction): (Master, Direction),
    iova: u32,
    len: usize,
) {
    let (start, end) = (u64::from(iova), u64::from(iova) + len as u64);
    let touched = accesses
        .entry((master, direction == Direction::Write))
        .or_insert(Touched {
            start,
            end,
            bytes: 0,
        });
    touched.start = touched.start.min(start);
    touched.end = touched.end.max(end);
    touched.bytes += len as u64;
}

/// Fails unless each engine's accesses are in an extent of that engine.
pub fn assert_within(accesses: &Accesses, extents: &[Extent]) {
    for (&(master, write), touched) in accesses {
        let known = extents.iter().any(|extent| {
            master == extent.engine.into()
                && (extent.engine.direction() == Direction::Write) == write
                && extent.start <= touched.start
                && touched.end <= extent.end
        });
        assert!(
            known || master == Master::Fetch,
            "{master:?}, writes {write}: {touched:#x?} is not in {extents:#x?}"
        );
    }
}

/// Memory of a few buffer objects; nothing is mapped between them.
#[derive(Clone, Debug, Default)]
pub struct ObjectMemory {
    objects: Vec<(u32, Vec<u8>)>,
    accesses: Accesses,
    faults: u32,
}

impl ObjectMemory {
    /// Buffer objects of `len` bytes at `places`, with contents by `seed`.
    pub fn new(places: &[u32], len: usize, seed: u8) -> Self {
        let fill = |index: usize| {
            let from = (usize::from(seed) + index * OBJECT_SKEW) % NOISE_BYTES;
            let mut bytes = NOISE[from..].to_vec();
            while bytes.len() < len {
                bytes.extend_from_slice(&NOISE);
            }
            bytes.truncate(len);
            bytes
        };
        Self {
            objects: places
                .iter()
                .enumerate()
                .map(|(index, &place)| (place, fill(index)))
                .collect(),
            ..Self::default()
        }
    }

    /// Copies `data` to `iova`.
    pub fn place(&mut self, iova: u32, data: &[u8]) {
        let (object, at) = self.find(iova, data.len()).unwrap();
        self.objects[object].1[at..at + data.len()].copy_from_slice(data);
    }

    /// The bytes from `iova` on.
    pub fn bytes(&self, iova: u32, len: usize) -> Vec<u8> {
        let (object, at) = self.find(iova, len).unwrap();
        self.objects[object].1[at..at + len].to_vec()
    }

    /// The contents of all objects.
    pub fn contents(&self) -> Vec<Vec<u8>> {
        self.objects
            .iter()
            .map(|(_, bytes)| bytes.clone())
            .collect()
    }

    /// The accesses since the last call, and the number of refused ones.
    pub fn take_accesses(&mut self) -> (Accesses, u32) {
        (take(&mut self.accesses), take(&mut self.faults))
    }

    /// Index of the object, and offset in it.
    fn find(&self, iova: u32, len: usize) -> Option<(usize, usize)> {
        let mut objects = self.objects.iter().enumerate();
        objects.find_map(|(index, (start, bytes))| {
            let at = iova.checked_sub(*start)? as usize;
            (at.checked_add(len)? <= bytes.len()).then_some((index, at))
        })
    }

    fn access(
        &mut self,
        master: Master,
        direction: Direction,
        iova: u32,
        len: usize,
    ) -> Result<(&mut Vec<u8>, usize), Fault> {
        note(&mut self.accesses, (master, direction), iova, len);
        let Some((object, at)) = self.find(iova, len) else {
            self.faults += 1;
            return Err(Fault {
                address: iova.into(),
                direction,
                master,
            });
        };
        Ok((&mut self.objects[object].1, at))
    }
}

/// Period of the contents of objects, a prime.
const NOISE_BYTES: usize = 16_381;
/// Offset between the contents of two objects.
const OBJECT_SKEW: usize = 1009;

/// Small numbers of either sign, finite in every format.
static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let byte = |at: u32| {
        let mixed = at.wrapping_mul(0x9e37_79b1);
        let sign = if mixed & 1 << 20 == 0 { 0 } else { 0xf8 };
        (mixed >> 28) as u8 ^ sign
    };
    (0..NOISE_BYTES as u32).map(byte).collect()
});

impl Bus for ObjectMemory {
    fn read(&mut self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
        let (object, at) = self.access(master, Direction::Read, iova, out.len())?;
        out.copy_from_slice(&object[at..at + out.len()]);
        Ok(())
    }

    fn write(&mut self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault> {
        let (object, at) = self.access(master, Direction::Write, iova, data.len())?;
        object[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }
}

/// The result of a kick, as registers and the bus show it.
#[derive(Clone, Debug, PartialEq)]
pub struct KickRecord {
    pub completed: bool,
    pub dma_error: bool,
    pub diagnosis: Vec<Diagnosis>,
    pub device_time: Duration,
    pub registers: Vec<u32>,
}

pub struct FuzzBoard {
    core: Core,
}

impl FuzzBoard {
    pub fn new(level: Level, contested: Contested) -> Self {
        Self {
            core: Core::new(&ChipOptions {
                level,
                contested,
                ..ChipOptions::default()
            }),
        }
    }

    /// Writes a register. Returns the result of the tasks that it starts.
    pub fn write(&mut self, offset: u32, value: u32, bus: &mut dyn Bus) -> Option<Ran> {
        let finished = self.core.mmio_write(offset, value)?.run(bus, TASK_LIMIT);
        self.core.complete(finished)
    }

    pub fn reset(&mut self) {
        self.core.reset();
    }

    /// Starts a program with the register writes of the kernel driver on core
    /// `index`. Returns the result.
    pub fn kick(
        &mut self,
        bus: &mut dyn Bus,
        index: u32,
        at: u32,
        words: usize,
        tasks: u32,
    ) -> KickRecord {
        let writes = families::kick(index, at, words, tasks);
        let [.., ran] = writes.map(|(offset, value)| self.write(offset, value, bus));
        let ran = ran.unwrap();
        let core = &self.core;
        let raw = core.mmio_read(pc::InterruptRawStatus::OFFSET.into());
        let outcome = KickRecord {
            completed: raw & DPU_DONE != 0,
            dma_error: raw & DMA_ERRORS != 0,
            diagnosis: ran.diagnosis,
            device_time: ran.device_time,
            registers: regs::all()
                .map(|info| core.mmio_read(info.offset.into()))
                .collect(),
        };
        if outcome.completed {
            self.write(pc::InterruptMask::OFFSET.into(), 0, bus);
            self.write(pc::OperationEnable::OFFSET.into(), 0, bus);
            self.write(pc::InterruptClear::OFFSET.into(), 0x1_ffff, bus);
        }
        outcome
    }
}
