// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of a core while its tasks run.

use std::thread;
use std::time::Duration;

use rknpu_chip::{Kick, NpuCore};
use rknpu_regcmd::Register;
use rknpu_regcmd::regs::{dpu, pc};

use super::board::{DPU_DONE, SENTINEL};
use super::board_matmul::{BoardMatmul, small};

const SECOND: Duration = Duration::from_secs(1);

/// A matmul, ready to run on core 0.
fn started() -> (BoardMatmul, Kick) {
    let mut matmul = small();
    let kick = start(&mut matmul);
    (matmul, kick)
}

fn start(matmul: &mut BoardMatmul) -> Kick {
    let words = matmul.conv.task();
    let at = matmul.board.place_program(&words);
    matmul.board.prepare(0, at, words.len(), 1)
}

/// Runs a kick of core 0 to its end, without a trap.
fn finish(matmul: &mut BoardMatmul, kick: Kick) {
    let finished = kick.run(&mut matmul.board.memory, SECOND);
    matmul.board.end(0, finished).unwrap().assert_clean();
}

fn read<R: Register>(matmul: &BoardMatmul) -> u32 {
    matmul.board.cores[0].mmio_read(R::INFO.offset.into())
}

fn write<R: Register>(matmul: &mut BoardMatmul, value: u32) -> Option<Kick> {
    matmul.board.cores[0].mmio_write(R::INFO.offset.into(), value)
}

#[test]
fn an_rk3588_tells_its_version() {
    let mut matmul = small();
    assert!(write::<pc::Version>(&mut matmul, 7).is_none());
    // The sum that Linux's driver prints and boards report.
    let sum = read::<pc::Version>(&matmul) + (read::<pc::VersionNum>(&matmul) & 0xffff);
    assert_eq!(sum, 1_179_210_309);
}

#[test]
fn a_kick_runs_on_another_thread_and_shows_when_it_is_complete() {
    let (mut matmul, kick) = started();
    let before = read::<dpu::SPointer>(&matmul);
    let memory = &mut matmul.board.memory;
    let finished = thread::scope(|scope| scope.spawn(|| kick.run(memory, SECOND)).join().unwrap());
    assert!(matmul.out().iter().any(|&b| b != SENTINEL));
    assert_eq!(read::<pc::InterruptRawStatus>(&matmul), 0);
    assert_eq!(read::<dpu::SPointer>(&matmul), before);
    assert!(!matmul.board.cores[0].irq_level());
    matmul.board.end(0, finished).unwrap().assert_clean();
    assert_ne!(read::<dpu::SPointer>(&matmul), before);
    assert_eq!(read::<pc::TaskStatus>(&matmul), 1);
    assert!(matmul.board.cores[0].irq_level());
    assert!(write::<pc::InterruptMask>(&mut matmul, 0).is_none());
    assert!(!matmul.board.cores[0].irq_level());
    assert!(write::<pc::InterruptMask>(&mut matmul, DPU_DONE).is_none());
    assert!(write::<pc::InterruptClear>(&mut matmul, DPU_DONE).is_none());
    assert!(!matmul.board.cores[0].irq_level());
}

#[test]
fn writes_while_a_kick_runs_are_the_pcs_or_lost() {
    let (mut matmul, kick) = started();
    assert!(write::<pc::OperationEnable>(&mut matmul, 1).is_none());
    assert!(write::<dpu::LutAccessCfg>(&mut matmul, 0x1234).is_none());
    assert_eq!(read::<dpu::LutAccessCfg>(&matmul), 0);
    // The address of the next program does not move this one.
    assert!(write::<pc::BaseAddress>(&mut matmul, 0x10).is_none());
    assert!(write::<pc::InterruptMask>(&mut matmul, 0).is_none());
    finish(&mut matmul, kick);
    assert_eq!(read::<pc::BaseAddress>(&matmul), 0x10);
    assert!(!matmul.board.cores[0].irq_level());
}

#[test]
fn a_reset_ends_a_kick() {
    let (mut matmul, kick) = started();
    matmul.board.cores[0].reset();
    let finished = kick.run(&mut matmul.board.memory, SECOND);
    assert!(matmul.board.memory.accesses.is_empty());
    assert!(finished.outcome.diagnosis.is_empty());
    // Another kick runs by now, so this one cannot complete.
    let next = start(&mut matmul);
    assert!(matmul.board.end(0, finished).is_none());
    assert_eq!(read::<pc::InterruptRawStatus>(&matmul), 0);
    finish(&mut matmul, next);
}

#[test]
fn a_kick_belongs_to_its_core() {
    let (mut matmul, kick) = started();
    let finished = kick.run(&mut matmul.board.memory, SECOND);
    assert!(matmul.board.end(1, finished).is_none());
}
