// SPDX-License-Identifier: MIT OR Apache-2.0
//! One program on one core: `cargo run -p rknpu-chip --example one_program`.
//!
//! A matmul of small numbers runs on a core whose memory is a vector. The
//! result is compared with a plain loop.

use std::error::Error;
use std::time::Duration;

use rknpu_chip::{ChipOptions, Core, NpuCore};
use rknpu_regcmd::regs::{cna, core, pc};
use rknpu_regcmd::{Binding, BufferId, ChipProfile, Iova, LinkedProgram, MatmulTask, TaskType};

/// Rows of A and of the result, columns of A, columns of B and of the result.
const SIZES: (u32, u32, u32) = (8, 64, 32);
/// Addresses of A, B, the result and the program, a page each.
const PLACES: [u32; 4] = [0x0000, 0x1000, 0x2000, 0x3000];
const PAGE: u32 = 0x1000;

/// Interrupts DPU_0 and DPU_1: the output is written.
const DPU_DONE: u32 = 0x300;
/// S_POINTER: register group 0; both pointers toggle.
const PING_PONG: u32 = 0xe;
/// TASK_CON as the mainline driver writes it, for one task.
const ONE_TASK: u32 = 0x7001;

/// An element of A.
fn a(row: u32, i: u32) -> i8 {
    ((row * 5 + i * 3) % 15) as i8 - 7
}

/// An element of B, by column.
fn b(column: u32, i: u32) -> i8 {
    ((column * 7 + i * 11) % 13) as i8 - 6
}

fn program() -> Result<LinkedProgram, Box<dyn Error>> {
    let (m, k, n) = SIZES;
    let task = MatmulTask {
        ty: TaskType::Int8ToInt32,
        m,
        k,
        n,
        a: BufferId(0).at(0),
        b: BufferId(1).at(0),
        c: BufferId(2).at(0),
    };
    let bindings = [0, 1, 2].map(|id| Binding {
        id: BufferId(id),
        iova: Iova(PLACES[id as usize]),
        len: PAGE,
    });
    Ok(task.program(&ChipProfile::RK3588)?.link(&bindings)?)
}

/// Runs a program on a core and completes it.
fn run(npu: &mut Core, memory: &mut Vec<u8>, at: u32, words: u32) -> Result<(), Box<dyn Error>> {
    for (offset, value) in [
        (cna::SPointer::OFFSET, PING_PONG),
        (core::SPointer::OFFSET, PING_PONG),
        (pc::BaseAddress::OFFSET, at),
        (pc::RegisterAmounts::OFFSET, words.div_ceil(2) - 1),
        (pc::InterruptMask::OFFSET, DPU_DONE),
        (pc::TaskCon::OFFSET, ONE_TASK),
    ] {
        assert!(npu.mmio_write(offset.into(), value).is_none());
    }
    let kick = npu
        .mmio_write(pc::OperationEnable::OFFSET.into(), 1)
        .ok_or("the core is already running")?;
    // A device model would do this on a separate thread.
    let finished = kick.run(memory, Duration::from_secs(1));
    let outcome = npu.complete(finished).ok_or("the core was reset")?;
    for diagnosis in &outcome.diagnosis {
        println!("{diagnosis}");
    }
    println!("modelled device time: {:?}", outcome.device_time);
    if !npu.irq_level() {
        return Err("the task hangs".into());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (m, k, n) = SIZES;
    let [_, at_b, at_c, at_program] = PLACES.map(|place| place as usize);
    let mut memory = vec![0; at_program + PAGE as usize];
    // A: atoms of 16 bytes, column of atoms by column. B: groups of 32 kernels
    // in groups of 32 channels (`rknpu_regcmd::MatmulTask`).
    let in_a = |row, i| (i / 16 * m * 16 + row * 16 + i % 16) as usize;
    let in_b =
        |column, i| ((column / 32 * k / 32 + i / 32) * 1024 + column % 32 * 32 + i % 32) as usize;
    let in_c = |row, column| 4 * (column / 4 * m * 4 + row * 4 + column % 4) as usize;
    for i in 0..k {
        for row in 0..m {
            memory[in_a(row, i)] = a(row, i) as u8;
        }
        for column in 0..n {
            memory[at_b + in_b(column, i)] = b(column, i) as u8;
        }
    }
    let linked = program()?;
    let words = linked.words();
    let bytes = words.iter().flat_map(|word| word.bits().to_le_bytes());
    memory.splice(at_program..at_program + 8 * words.len(), bytes);

    let mut npu = Core::new(&ChipOptions::default());
    run(&mut npu, &mut memory, PLACES[3], words.len() as u32)?;

    for row in 0..m {
        for column in 0..n {
            let sum: i32 = (0..k)
                .map(|i| i32::from(a(row, i)) * i32::from(b(column, i)))
                .sum();
            let found = &memory[at_c + in_c(row, column)..][..4];
            if found != sum.to_le_bytes() {
                return Err(format!("({row}, {column}) is {found:?}, not {sum}").into());
            }
        }
    }
    println!("all {} sums equal those of a plain loop", m * n);
    Ok(())
}
