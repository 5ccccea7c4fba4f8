// SPDX-License-Identifier: MIT OR Apache-2.0
//! The silicon: three NPU cores seen through their register windows and their
//! memory masters, and nothing else.
//!
//! No kernel concept exists below this line. A core is driven by
//! [`Core::mmio_write`] with the offsets a CPU would use, and it reaches
//! memory only through the [`Bus`] handed to that call. The same chip can
//! therefore sit below the driver half of this crate, behind a preload
//! library, or behind a virtual machine's device model.

use std::sync::Mutex;
use std::time::Duration;

/// Which memory master of a core makes an access.
///
/// The names follow the blocks of the RK3588 TRM's NPU chapter and of Mesa's
/// register database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Master {
    /// The PC block, fetching command words.
    Fetch,
    /// CNA: feature data.
    Feature,
    /// CNA: weights.
    Weight,
    /// DPU_RDMA: main cube.
    Mrdma,
    /// DPU_RDMA: bias and scale operands.
    Brdma,
    /// DPU_RDMA: normalisation operands.
    Nrdma,
    /// DPU_RDMA: element-wise operand.
    Erdma,
    /// DPU: the output writer.
    DpuWrite,
    /// PPU_RDMA: pooling input.
    PpuRead,
    /// PPU: the output writer.
    PpuWrite,
}

/// Whether a [`Master`] read or wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From memory to the core.
    Read,
    /// From the core to memory.
    Write,
}

/// An access that the IOMMU refused: nothing is mapped at `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("IOMMU fault: {direction:?} by {master:?} at IOVA {address:#010x}")]
pub struct Fault {
    /// First byte of the access that has no translation.
    pub address: u64,
    /// Read or write.
    pub direction: Direction,
    /// Who asked.
    pub master: Master,
}

/// The memory that a core sees, addressed by IOVA.
///
/// A range may be discontiguous in host memory. An access that touches an
/// unmapped page fails; what it did before that page is unspecified.
pub trait Bus: Send {
    /// Fills `out` from `iova` on.
    ///
    /// # Errors
    /// The [`Fault`] of the first byte without translation.
    fn read(&self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault>;

    /// Writes `data` from `iova` on.
    ///
    /// # Errors
    /// The [`Fault`] of the first byte without translation.
    fn write(&self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault>;
}

/// How the model behaves when a program does what silicon punishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// The symptom of the silicon, and a [`Diagnosis`].
    #[default]
    Faithful,
    /// No interrupt at all: the task ends as a hang, with a [`Diagnosis`].
    Strict,
    /// The symptom of the silicon only.
    Silent,
}

/// What is wrong with a task, in words a person can act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// Stable identifier of the trap or rule, e.g. `"mrdma-unused"`.
    pub trap: &'static str,
    /// The registers that show it, by name, with their values.
    pub registers: Vec<(&'static str, u32)>,
    /// The rule that was broken.
    pub rule: String,
    /// What to change.
    pub remedy: String,
}

/// Configuration of a [`Chip`].
#[derive(Clone, Debug)]
pub struct ChipOptions {
    /// Number of cores (RK3588: 3).
    pub cores: u32,
    /// What happens on a trap.
    pub level: Level,
}

impl Default for ChipOptions {
    fn default() -> Self {
        Self {
            cores: 3,
            level: Level::default(),
        }
    }
}

/// All cores of one NPU. They share nothing but memory.
#[derive(Debug)]
pub struct Chip {
    cores: Vec<Mutex<Core>>,
}

impl Chip {
    /// A chip after power-up.
    #[must_use]
    pub fn new(options: &ChipOptions) -> Self {
        Self {
            cores: (0..options.cores)
                .map(|index| {
                    Mutex::new(Core {
                        index,
                        level: options.level,
                    })
                })
                .collect(),
        }
    }

    /// The cores, in order. Each may run concurrently with the others.
    #[must_use]
    pub fn cores(&self) -> &[Mutex<Core>] {
        &self.cores
    }
}

/// One core: registers, convolution buffer, tables.
#[derive(Debug)]
pub struct Core {
    index: u32,
    level: Level,
}

impl Core {
    /// A register write by the CPU, at `offset` bytes from the core's base.
    ///
    /// When a write starts the task (PC.OPERATION_ENABLE = 1) the task has
    /// run when this returns. It completed if PC.INTERRUPT_RAW_STATUS has
    /// bits set; if it has none, the core hangs, as on silicon.
    pub fn mmio_write(&mut self, offset: u32, value: u32, bus: &dyn Bus) {
        let _ = (offset, value, bus);
    }

    /// A register read by the CPU.
    pub fn mmio_read(&mut self, offset: u32) -> u32 {
        let _ = offset;
        0
    }

    /// What went wrong in the last task (empty: nothing known).
    #[must_use]
    pub fn diagnosis(&self) -> Vec<Diagnosis> {
        Vec::new()
    }

    /// How long the last task takes on the device, by the timing model.
    #[must_use]
    pub fn device_time(&self) -> Duration {
        Duration::ZERO
    }

    /// The reset pulse: every register returns to its value after power-up.
    pub fn reset(&mut self) {
        let _ = (self.index, self.level);
    }
}
