// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes words into register values and the blocks to start.

use core::ops::Range;

use crate::regfile::RegisterFile;
use crate::word::{Block, EnableMask, Word};

/// The state at an enable word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRegisters {
    /// The registers; those that the task itself wrote are marked as written.
    pub regs: RegisterFile,
    /// The blocks to start. Bits that name no block are kept.
    pub enable: EnableMask,
    /// Its words, from the first after the previous enable word to its own.
    pub words: Range<usize>,
}

/// The tasks in `words`, on a core whose registers are 0.
///
/// Words that write no register are skipped (see [`decode`](crate::decode())), and so
/// are words after the last enable word.
pub fn tasks(words: &[Word]) -> impl Iterator<Item = TaskRegisters> {
    tasks_after(words, RegisterFile::new())
}

/// The tasks in `words`, on a core whose registers hold `regs`. Registers keep their
/// values from task to task.
///
/// A core has two register groups, which tasks use in turn (E-groups-alternate). This
/// function has one: a register that a task does not write has the value of the task
/// before. On a core it has that of the task before the last.
pub fn tasks_after(words: &[Word], mut regs: RegisterFile) -> impl Iterator<Item = TaskRegisters> {
    let mut start = 0;
    core::iter::from_fn(move || {
        regs.forget_writes();
        for (index, &word) in words.iter().enumerate().skip(start) {
            if word.is_enable() {
                let words = start..index + 1;
                start = words.end;
                return Some(TaskRegisters {
                    regs: regs.clone(),
                    enable: EnableMask::from_bits_retain(word.value()),
                    words,
                });
            }
            let block = Block::from_target(word.target());
            if block.is_some() && block == Block::of_offset(word.offset()) {
                regs.set(word.offset(), word.value());
            }
        }
        start = words.len();
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regs::{cna, dpu};
    use std::vec::Vec;

    #[test]
    fn registers_persist_from_task_to_task() {
        let words = [
            Word::new(Block::Cna.target(), cna::ConvCon2::OFFSET, 7 << 4),
            Word::MARKER,
            Word::enable(EnableMask::CNA),
            Word::new(Block::Dpu.target(), dpu::BsCfg::OFFSET, 0x53),
            Word::enable(EnableMask::DPU),
            Word::NOP,
        ];
        let tasks: Vec<TaskRegisters> = tasks(&words).collect();
        assert_eq!(tasks.len(), 2);
        assert_eq!(
            (tasks[0].words.clone(), tasks[1].words.clone()),
            (0..3, 3..5)
        );
        assert!(tasks[0].regs.was_written(cna::ConvCon2::OFFSET));
        assert!(!tasks[1].regs.was_written(cna::ConvCon2::OFFSET));
        assert_eq!(tasks[1].regs.get::<cna::ConvCon2>().feature_grains(), 7);
        assert_eq!(tasks[1].enable, EnableMask::DPU);
    }

    #[test]
    fn a_target_that_disagrees_with_its_offset_writes_nothing() {
        let words = [
            Word::new(Block::Cna.target(), dpu::BsCfg::OFFSET, 1),
            Word::new(0, 0x1010, 1),
            Word::new(0x0202, 0x2000, 1),
            Word::enable(EnableMask::empty()),
        ];
        let task = tasks(&words).next().unwrap();
        assert_eq!(task.regs, RegisterFile::new());
    }
}
