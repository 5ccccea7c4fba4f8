// SPDX-License-Identifier: MIT OR Apache-2.0
//! A core that runs short scripts instead of register programs.
//!
//! It is kicked like the silicon and reads its "program", the number of a script,
//! through the bus. So a test decides when a job ends, how long it takes on the
//! device, and what its interrupt looks like.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use rknpu_chip::{Bus, Diagnosis, Effect, FinishedKick, Kick, KickOutcome, Master, NpuCore};
use rknpu_regcmd::DmaEngine;

#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Writes four bytes: address and value.
    Write(u64, u32),
    /// Copies four bytes: from and to.
    Copy(u64, u64),
    /// Stops until the test opens the gate.
    Wait(u32),
    /// Puts the number and the core into the log.
    Log(u32),
    /// Sets how many milliseconds the task takes on the device.
    Takes(u64),
    /// Ends without an interrupt.
    Hang,
    /// Ends with this interrupt status instead of DPU_0.
    Raise(u32),
    /// Fails inside the model.
    Panic,
}

/// State that a test shares with the cores.
#[derive(Debug, Default)]
pub struct Stage {
    state: Mutex<StageState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct StageState {
    scripts: Vec<Vec<Step>>,
    open: BTreeSet<u32>,
    all_open: bool,
    waiting: BTreeSet<u32>,
    log: Vec<(u32, usize)>,
    kicks: Vec<Vec<(u32, u32)>>,
    resets: usize,
}

impl Stage {
    fn state(&self) -> MutexGuard<'_, StageState> {
        self.state.lock().unwrap()
    }

    /// Adds a script. Returns its number, which is its program; 0 is no script.
    pub fn add(&self, script: &[Step]) -> u32 {
        let mut state = self.state();
        state.scripts.push(script.to_vec());
        state.scripts.len() as u32
    }

    pub fn open_gate(&self, gate: u32) {
        self.state().open.insert(gate);
        self.changed.notify_all();
    }

    /// Blocks until a task waits at the gate.
    pub fn await_arrival(&self, gate: u32) {
        let mut state = self.state();
        while !state.waiting.contains(&gate) {
            state = self.changed.wait(state).unwrap();
        }
    }

    pub fn is_waiting_at(&self, gate: u32) -> bool {
        self.state().waiting.contains(&gate)
    }

    /// The log of the scripts: number and core, in order.
    pub fn log(&self) -> Vec<(u32, usize)> {
        self.state().log.clone()
    }

    /// The numbers of the log alone.
    pub fn order(&self) -> Vec<u32> {
        self.state().log.iter().map(|&(number, _)| number).collect()
    }

    /// The register writes of each task up to its start.
    pub fn kicks(&self) -> Vec<Vec<(u32, u32)>> {
        self.state().kicks.clone()
    }

    pub fn resets(&self) -> usize {
        self.state().resets
    }

    /// Opens all gates after a panic, so that a failing test ends.
    pub fn let_all_pass_after_a_panic(&self) {
        if std::thread::panicking() {
            self.state().all_open = true;
            self.changed.notify_all();
        }
    }

    fn pass_gate(&self, gate: u32) {
        let mut state = self.state();
        state.waiting.insert(gate);
        self.changed.notify_all();
        while !state.all_open && !state.open.contains(&gate) {
            state = self.changed.wait(state).unwrap();
        }
        state.waiting.remove(&gate);
    }

    /// Runs the script at `base`. Returns its interrupt status and outcome.
    fn run(&self, bus: &mut dyn Bus, index: usize, base: u32) -> (u32, KickOutcome) {
        let mut outcome = KickOutcome::default();
        let mut program = [0; 4];
        let fetched = bus.read(Master::Fetch, base, &mut program);
        let mut status = if fetched.is_ok() { 0x100 } else { 0x1000 };
        let script = (u32::from_le_bytes(program) as usize)
            .checked_sub(1)
            .and_then(|index| self.state().scripts.get(index).cloned());
        for step in script.unwrap_or_default() {
            match step {
                Step::Write(at, value) => {
                    let _ = bus.write(DmaEngine::DpuWrite.into(), at as u32, &value.to_le_bytes());
                }
                Step::Copy(from, to) => {
                    let mut bytes = [0; 4];
                    let _ = bus.read(DmaEngine::Feature.into(), from as u32, &mut bytes);
                    let _ = bus.write(DmaEngine::DpuWrite.into(), to as u32, &bytes);
                }
                Step::Wait(gate) => self.pass_gate(gate),
                Step::Log(number) => self.state().log.push((number, index)),
                Step::Takes(millis) => outcome.device_time += Duration::from_millis(millis),
                Step::Hang => {
                    outcome.diagnosis = vec![Diagnosis {
                        trap: "script-hang",
                        effect: Effect::Hang,
                        registers: vec![],
                        rule: "a script said so".into(),
                        remedy: "do not".into(),
                    }];
                    status = 0;
                }
                Step::Raise(other) => status = other,
                Step::Panic => panic!("as the script says"),
            }
        }
        (status, outcome)
    }
}

#[derive(Debug)]
pub struct ScriptedCore {
    index: usize,
    stage: Arc<Stage>,
    writes: Vec<(u32, u32)>,
    base: u32,
    raw_status: Arc<AtomicU32>,
}

impl ScriptedCore {
    pub fn boxed(index: usize, stage: &Arc<Stage>) -> Box<dyn NpuCore> {
        Box::new(Self {
            index,
            stage: Arc::clone(stage),
            writes: Vec::new(),
            base: 0,
            raw_status: Arc::default(),
        })
    }

    fn tasks(&mut self) -> Kick {
        let (stage, index, base) = (Arc::clone(&self.stage), self.index, self.base);
        let raw_status = Arc::clone(&self.raw_status);
        Kick::new(move |bus, _| {
            let (status, outcome) = stage.run(bus, index, base);
            raw_status.fetch_or(status, Ordering::Relaxed);
            outcome
        })
    }
}

impl NpuCore for ScriptedCore {
    fn mmio_write(&mut self, offset: u32, value: u32) -> Option<Kick> {
        self.writes.push((offset, value));
        match offset {
            0x08 if value == 1 => {
                let kick = std::mem::take(&mut self.writes);
                self.stage.state().kicks.push(kick);
                return Some(self.tasks());
            }
            0x10 => self.base = value,
            0x24 => {
                self.raw_status.fetch_and(!value, Ordering::Relaxed);
            }
            _ => {}
        }
        None
    }

    fn mmio_read(&self, offset: u32) -> u32 {
        if offset == 0x2c {
            self.raw_status.load(Ordering::Relaxed)
        } else {
            0
        }
    }

    fn complete(&mut self, finished: FinishedKick) -> Option<KickOutcome> {
        Some(finished.outcome)
    }

    fn reset(&mut self) {
        self.raw_status.store(0, Ordering::Relaxed);
        self.stage.state().resets += 1;
    }
}
