// SPDX-License-Identifier: MIT OR Apache-2.0
//! The RK3588 NPU in software: cores with their register windows and memory
//! masters, and nothing else.
//!
//! A [`Core`] implements [`mmio_read`](NpuCore::mmio_read) and
//! [`mmio_write`](NpuCore::mmio_write), with the offsets that a CPU would use. A
//! write that starts tasks returns them as a [`Kick`]. Any thread may
//! [`run`](Kick::run) it over a [`Bus`], the memory that the core sees.
//! [`NpuCore::complete`] then shows their end in the registers and on the
//! [interrupt line](NpuCore::irq_level). The crate has no concept of a kernel: no
//! jobs, no files. The same core runs below a driver in software, in a virtual
//! machine's device model, or in a replay of recorded register writes.
//!
//! A matmul, from program to result (`cargo run --example one_program`):
#![doc = "```"]
#![doc = include_str!("../examples/one_program.rs")]
#![doc = "```"]
#![deny(unsafe_code)]

mod cbuf;
mod check;
mod cna;
mod contested;
mod conv;
mod conv_config;
mod core_parts;
mod dcomp;
mod dma;
mod dpu;
mod flying;
mod gemm;
mod kick;
mod mac;
mod mac_array;
mod npu_core;
mod patches;
mod pc;
mod pixels;
mod ppu;
mod precision;
mod rdma;
mod registers;
mod rows;
mod stalls;
mod time;
mod trap;
#[allow(unsafe_code)]
mod vectors;
mod weights;
mod writer;

use std::fmt;

pub use contested::{Contested, Switch, UnknownSwitch};
pub use kick::{FinishedKick, Kick, KickOutcome};
pub use npu_core::{Core, NpuCore};
pub use stalls::Stalls;

pub use rknpu_regcmd::Direction;
use rknpu_regcmd::DmaEngine;
pub use rknpu_regcmd::rules::Effect;
use rknpu_regcmd::timing::Machine;

/// The memory master of a core that makes an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Master {
    /// The PC block, fetching command words.
    Fetch,
    /// A DMA engine, whose extent rknpu-regcmd computes.
    Engine(DmaEngine),
}

impl From<DmaEngine> for Master {
    fn from(engine: DmaEngine) -> Self {
        Self::Engine(engine)
    }
}

impl fmt::Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fetch => f.write_str("Fetch"),
            Self::Engine(engine) => write!(f, "{engine:?}"),
        }
    }
}

/// An access that the IOMMU refused: nothing is mapped at `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("IOMMU fault: {direction:?} by {master} at IOVA {address:#010x}")]
pub struct Fault {
    /// First byte of the access that has no translation.
    pub address: u64,
    /// Whether it was a read or a write.
    pub direction: Direction,
    /// The master that made the access.
    pub master: Master,
}

/// The memory that a core sees, addressed by IOVA: an IOMMU and what lies behind
/// it, for the duration of a [`Kick`].
///
/// A range may be discontiguous in host memory. An access that touches an
/// unmapped page fails; its effect before that page is unspecified. If cores
/// share memory, each has a separate `Bus` over it.
pub trait Bus {
    /// Fills `out` from `iova` on.
    ///
    /// # Errors
    /// The [`Fault`] of the first byte without translation.
    fn read(&mut self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault>;

    /// Checks that `len` bytes from `iova` on can be read.
    ///
    /// # Errors
    /// The [`Fault`] of the first byte without translation.
    fn check_read(&mut self, master: Master, iova: u32, len: usize) -> Result<(), Fault> {
        const PIECE: usize = 4096;
        let mut piece = [0; PIECE];
        for at in (0..len).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(len - at)];
            // Callers keep the range within 32 bits.
            self.read(master, iova.wrapping_add(at as u32), piece)?;
        }
        Ok(())
    }

    /// Writes `data` from `iova` on.
    ///
    /// # Errors
    /// The [`Fault`] of the first byte without translation.
    fn write(&mut self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault>;

    /// Identifies the attached translations: a number that changes with them.
    ///
    /// CBUF records the address from which a task fetched data, to check that a
    /// later task reuses what it means to. Once other translations are attached,
    /// as Linux's `rocket` does for each job, that address means nothing: such a
    /// reuse is diagnosed.
    fn attachment(&self) -> u64 {
        0
    }
}

/// Memory from IOVA 0 to its end, without unmapped pages.
impl Bus for Vec<u8> {
    fn read(&mut self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
        out.copy_from_slice(range(self, master, Direction::Read, iova, out.len())?);
        Ok(())
    }

    fn write(&mut self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault> {
        range(self, master, Direction::Write, iova, data.len())?.copy_from_slice(data);
        Ok(())
    }
}

/// The bytes of an access to `memory`.
fn range(
    memory: &mut [u8],
    master: Master,
    direction: Direction,
    iova: u32,
    len: usize,
) -> Result<&mut [u8], Fault> {
    let (start, size) = (iova as usize, memory.len());
    memory.get_mut(start..start + len).ok_or(Fault {
        address: start.max(size) as u64,
        direction,
        master,
    })
}

/// Reaction of the model to a program that breaks a rule of the silicon.
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

/// A fault of a task, with the broken rule and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// Stable identifier of the trap or rule, e.g. `"T01-mrdma-unfed"`; the
    /// number is that of the list in `docs/chip.md`.
    pub trap: &'static str,
    /// Effect on the task.
    pub effect: Effect,
    /// Registers that show the fault, by name, with their values.
    pub registers: Vec<(&'static str, u32)>,
    /// The rule that was broken.
    pub rule: String,
    /// Change to the program that avoids the fault.
    pub remedy: String,
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (", self.trap, self.rule)?;
        for (index, (name, value)) in self.registers.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name}={value:#x}")?;
        }
        write!(f, "). {}", self.remedy)
    }
}

/// Configuration of a [`Core`].
#[derive(Clone, Copy, Debug)]
pub struct ChipOptions {
    /// Reaction to a trap.
    pub level: Level,
    /// Selected sides of the contested facts.
    pub contested: Contested,
    /// Clocks, memory and driver costs for modelled times.
    pub machine: Machine,
}

impl Default for ChipOptions {
    fn default() -> Self {
        Self {
            level: Level::default(),
            contested: Contested::default(),
            machine: Machine::RK3588,
        }
    }
}
