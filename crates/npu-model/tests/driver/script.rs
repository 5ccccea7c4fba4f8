// SPDX-License-Identifier: MIT OR Apache-2.0
//! A core that runs little scripts instead of register programs.
//!
//! It is kicked exactly as the silicon is, reads its "program" through the
//! bus and does what it says: so a test decides when a job ends, how long it
//! takes on the device, and what its interrupt looks like.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use npu_model::driver::NpuCore;
use rknpu_chip::{Bus, Diagnosis, Effect, Master, Outcome};

/// One step of a script. Each takes two 64-bit words.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Writes four bytes.
    Write { iova: u32, value: u32 },
    /// Copies four bytes.
    Copy { from: u32, to: u32 },
    /// Stops until the test opens the gate.
    Wait { gate: u32 },
    /// Puts a number and the core into the log.
    Log { number: u32 },
    /// Says how long the task takes on the device.
    Takes { millis: u32 },
    /// Ends without an interrupt.
    Hang,
    /// Ends with this interrupt status instead of DPU_0.
    Raise { status: u32 },
    /// Fails inside the model.
    Panic,
}

pub const STEP_WORDS: u32 = 2;

impl Step {
    fn encode(self) -> [u64; 2] {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        match self {
            Self::Write { iova, value } => [1, pair(value, iova)],
            Self::Copy { from, to } => [2, pair(from, to)],
            Self::Wait { gate } => [3, pair(0, gate)],
            Self::Log { number } => [4, pair(0, number)],
            Self::Takes { millis } => [5, pair(0, millis)],
            Self::Hang => [6, 0],
            Self::Raise { status } => [7, pair(0, status)],
            Self::Panic => [8, 0],
        }
    }

    pub fn bytes(script: &[Self]) -> Vec<u8> {
        script
            .iter()
            .flat_map(|step| step.encode())
            .flat_map(u64::to_le_bytes)
            .collect()
    }
}

/// What a test shares with the cores.
#[derive(Debug, Default)]
pub struct Stage {
    state: Mutex<StageState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct StageState {
    open: BTreeSet<u32>,
    all_open: bool,
    waiting: BTreeSet<u32>,
    log: Vec<(u32, usize)>,
    kicks: Vec<Vec<(u32, u32)>>,
    resets: Vec<usize>,
}

impl Stage {
    pub fn open_gate(&self, gate: u32) {
        self.state.lock().unwrap().open.insert(gate);
        self.changed.notify_all();
    }

    /// Blocks until a task stands at the gate.
    pub fn await_arrival(&self, gate: u32) {
        let mut state = self.state.lock().unwrap();
        while !state.waiting.contains(&gate) {
            state = self.changed.wait(state).unwrap();
        }
    }

    pub fn is_waiting_at(&self, gate: u32) -> bool {
        self.state.lock().unwrap().waiting.contains(&gate)
    }

    /// What the scripts logged: number and core, in order.
    pub fn log(&self) -> Vec<(u32, usize)> {
        self.state.lock().unwrap().log.clone()
    }

    /// The register writes of each task up to its start.
    pub fn kicks(&self) -> Vec<Vec<(u32, u32)>> {
        self.state.lock().unwrap().kicks.clone()
    }

    /// The cores that were reset.
    pub fn resets(&self) -> Vec<usize> {
        self.state.lock().unwrap().resets.clone()
    }

    /// Lets a failing test end instead of waiting for its own gates.
    pub fn let_all_pass_after_a_panic(&self) {
        if std::thread::panicking() {
            self.state.lock().unwrap().all_open = true;
            self.changed.notify_all();
        }
    }

    fn pass_gate(&self, gate: u32) {
        let mut state = self.state.lock().unwrap();
        state.waiting.insert(gate);
        self.changed.notify_all();
        while !state.all_open && !state.open.contains(&gate) {
            state = self.changed.wait(state).unwrap();
        }
        state.waiting.remove(&gate);
    }
}

#[derive(Debug)]
pub struct ScriptedCore {
    index: usize,
    stage: Arc<Stage>,
    writes: Vec<(u32, u32)>,
    base: u32,
    amount: u32,
    raw_status: u32,
}

impl ScriptedCore {
    pub fn all(count: usize, stage: &Arc<Stage>) -> Vec<Box<dyn NpuCore>> {
        (0..count)
            .map(|index| -> Box<dyn NpuCore> {
                Box::new(Self {
                    index,
                    stage: Arc::clone(stage),
                    writes: Vec::new(),
                    base: 0,
                    amount: 0,
                    raw_status: 0,
                })
            })
            .collect()
    }

    fn run(&mut self, bus: &mut dyn Bus) -> Outcome {
        let mut outcome = Outcome::default();
        let mut status = 0x100;
        let words = (self.amount + 1) * 2;
        let read = |bus: &mut dyn Bus, iova: u32| {
            let mut bytes = [0; 8];
            bus.read(Master::Fetch, iova, &mut bytes)
                .map(|()| u64::from_le_bytes(bytes))
        };
        for step in 0..words / STEP_WORDS {
            let at = self.base.wrapping_add(step * 16);
            let (Ok(op), Ok(operand)) = (read(bus, at), read(bus, at.wrapping_add(8))) else {
                status = 0x1000;
                break;
            };
            let (high, low) = ((operand >> 32) as u32, operand as u32);
            match op {
                1 => {
                    let _ = bus.write(Master::DpuWrite, low, &high.to_le_bytes());
                }
                2 => {
                    let mut bytes = [0; 4];
                    let _ = bus.read(Master::Feature, high, &mut bytes);
                    let _ = bus.write(Master::DpuWrite, low, &bytes);
                }
                3 => self.stage.pass_gate(low),
                4 => self.stage.state.lock().unwrap().log.push((low, self.index)),
                5 => outcome.device_time += Duration::from_millis(u64::from(low)),
                6 => {
                    outcome.diagnosis = vec![hang()];
                    status = 0;
                }
                7 => status = low,
                8 => panic!("as the script says"),
                _ => {}
            }
        }
        self.raw_status |= status;
        outcome
    }
}

fn hang() -> Diagnosis {
    Diagnosis {
        trap: "script-hang",
        effect: Effect::Hang,
        registers: vec![],
        rule: "a script said so".into(),
        remedy: "do not".into(),
    }
}

impl NpuCore for ScriptedCore {
    fn mmio_write(
        &mut self,
        offset: u32,
        value: u32,
        bus: &mut dyn Bus,
        _: Duration,
    ) -> Option<Outcome> {
        self.writes.push((offset, value));
        match offset {
            0x08 if value == 1 => {
                let kick = std::mem::take(&mut self.writes);
                self.stage.state.lock().unwrap().kicks.push(kick);
                return Some(self.run(bus));
            }
            0x10 => self.base = value,
            0x14 => self.amount = value,
            0x24 => self.raw_status &= !value,
            _ => {}
        }
        None
    }

    fn mmio_read(&self, offset: u32) -> u32 {
        match offset {
            0x2c => self.raw_status,
            _ => 0,
        }
    }

    fn reset(&mut self) {
        self.raw_status = 0;
        self.stage.state.lock().unwrap().resets.push(self.index);
    }
}
