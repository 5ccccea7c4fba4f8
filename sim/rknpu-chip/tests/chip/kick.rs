// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of a core while its tasks run.

use std::thread;
use std::time::Duration;

use rknpu_chip::{Kick, NpuCore};
use rknpu_regcmd::Register;
use rknpu_regcmd::regs::{dpu, pc};

use super::board::{DPU_DONE, SENTINEL};
use super::product::{Product, small};

const SECOND: Duration = Duration::from_secs(1);

/// A matmul, ready to run on core 0.
fn started() -> (Product, Kick) {
    let mut product = small();
    let words = product.conv.task();
    let at = product.board.place_program(&words);
    let kick = product.board.prepare(0, at, words.len(), 1);
    (product, kick)
}

fn read<R: Register>(product: &Product) -> u32 {
    product.board.cores[0].mmio_read(R::INFO.offset.into())
}

fn write<R: Register>(product: &mut Product, value: u32) -> Option<Kick> {
    product.board.cores[0].mmio_write(R::INFO.offset.into(), value)
}

#[test]
fn an_rk3588_tells_its_version() {
    let mut product = small();
    assert!(write::<pc::Version>(&mut product, 7).is_none());
    // The sum that Linux's driver prints and boards report.
    let sum = read::<pc::Version>(&product) + (read::<pc::VersionNum>(&product) & 0xffff);
    assert_eq!(sum, 1_179_210_309);
}

#[test]
fn a_kick_runs_on_another_thread_and_shows_when_it_is_complete() {
    let (mut product, kick) = started();
    let before = read::<dpu::SPointer>(&product);
    let memory = &mut product.board.memory;
    let finished = thread::scope(|scope| scope.spawn(|| kick.run(memory, SECOND)).join().unwrap());
    assert!(product.out().iter().any(|&b| b != SENTINEL));
    assert_eq!(read::<pc::InterruptRawStatus>(&product), 0);
    assert_eq!(read::<dpu::SPointer>(&product), before);
    assert!(!product.board.cores[0].irq_level());
    product.board.end(0, finished).unwrap().assert_clean();
    assert_ne!(read::<dpu::SPointer>(&product), before);
    assert_eq!(read::<pc::TaskStatus>(&product), 1);
    assert!(product.board.cores[0].irq_level());
    assert!(write::<pc::InterruptMask>(&mut product, 0).is_none());
    assert!(!product.board.cores[0].irq_level());
    assert!(write::<pc::InterruptMask>(&mut product, DPU_DONE).is_none());
    assert!(write::<pc::InterruptClear>(&mut product, DPU_DONE).is_none());
    assert!(!product.board.cores[0].irq_level());
}

#[test]
fn writes_while_a_kick_runs_are_the_pcs_or_lost() {
    let (mut product, kick) = started();
    assert!(write::<pc::OperationEnable>(&mut product, 1).is_none());
    assert!(write::<dpu::LutAccessCfg>(&mut product, 0x1234).is_none());
    assert_eq!(read::<dpu::LutAccessCfg>(&product), 0);
    // The address of the next program does not move this one.
    assert!(write::<pc::BaseAddress>(&mut product, 0x10).is_none());
    assert!(write::<pc::InterruptMask>(&mut product, 0).is_none());
    let finished = kick.run(&mut product.board.memory, SECOND);
    product.board.end(0, finished).unwrap().assert_clean();
    assert_eq!(read::<pc::BaseAddress>(&product), 0x10);
    assert!(!product.board.cores[0].irq_level());
}

#[test]
fn a_reset_ends_a_kick() {
    let (mut product, kick) = started();
    product.board.cores[0].reset();
    let finished = kick.run(&mut product.board.memory, SECOND);
    assert!(product.board.memory.accesses.is_empty());
    assert!(finished.outcome.diagnosis.is_empty());
    // Another kick runs by now, so this one cannot complete.
    let words = product.conv.task();
    let at = product.board.place_program(&words);
    let next = product.board.prepare(0, at, words.len(), 1);
    assert!(product.board.end(0, finished).is_none());
    assert_eq!(read::<pc::InterruptRawStatus>(&product), 0);
    let finished = next.run(&mut product.board.memory, SECOND);
    product.board.end(0, finished).unwrap().assert_clean();
}

#[test]
fn a_kick_belongs_to_its_core() {
    let (mut product, kick) = started();
    let finished = kick.run(&mut product.board.memory, SECOND);
    assert!(product.board.end(1, finished).is_none());
}
