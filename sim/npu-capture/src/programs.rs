// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of a job, found by their addresses.

use std::ops::Range;

use rknpu_regcmd::{Before, extents, lint, tasks_after};
use rknpu_regcmd::{
    Extent, ExtentError, Finding, Iova, LintContext, Program, RegisterFile, TaskRegisters, Word,
};
use rocket_uapi::sys;

/// Bytes of a command word.
const WORD_BYTES: u64 = size_of::<Word>() as u64;

/// The addresses of a task's words.
pub(crate) fn words_range(task: &sys::Task) -> Range<u64> {
    let start = u64::from(task.regcmd);
    start..start + u64::from(task.regcmd_count) * WORD_BYTES
}

/// One program of a job.
#[derive(Clone, Debug)]
pub struct CapturedProgram {
    /// Its index in the job.
    pub index: usize,
    /// Its address in the job's memory, and its length.
    pub task: sys::Task,
    /// Its words; `None` if no buffer object contains them, or if there are none or
    /// more than the NPU can fetch.
    pub words: Option<Vec<Word>>,
    before: RegisterFile,
}

impl CapturedProgram {
    /// Its words; an empty list if they could not be read.
    #[must_use]
    pub fn words(&self) -> &[Word] {
        self.words.as_deref().unwrap_or_default()
    }

    /// The tasks that it starts, with the registers that the programs before it
    /// left.
    pub fn tasks(&self) -> impl Iterator<Item = TaskRegisters> {
        tasks_after(self.words(), self.before.clone())
    }

    /// The ranges that each of [`CapturedProgram::tasks`] touches.
    pub fn extents(
        &self,
    ) -> impl Iterator<Item = (TaskRegisters, Result<Vec<Extent>, ExtentError>)> + '_ {
        self.tasks().map(|task| {
            let touched = extents(&task.regs, task.enable);
            (task, touched)
        })
    }

    /// The lint's findings.
    #[must_use]
    pub fn lint(&self) -> Vec<Finding> {
        // The state of the core before the job is not known.
        let context = LintContext {
            before: if self.index == 0 {
                Before::Unknown
            } else {
                Before::Known(self.before.clone())
            },
            continues_job: self.index > 0,
            address: Some(Iova(self.task.regcmd)),
        };
        lint(self.words(), &context)
    }
}

/// The programs of the tasks of a job. `objects` are the NPU addresses of the job's objects.
/// `read` reads one of them from an offset on, and returns whether that is possible.
pub(crate) fn programs<T>(
    tasks: &[sys::Task],
    objects: impl Iterator<Item = (T, Range<u64>)>,
    read: impl Fn(&T, u64, &mut [u8]) -> bool,
) -> impl Iterator<Item = CapturedProgram> {
    // Sorted once, since there may be many programs.
    let mut objects: Vec<_> = objects.collect();
    objects.sort_unstable_by_key(|(_, range)| range.start);
    let words = move |task: &sys::Task| {
        let words = words_range(task);
        if task.regcmd_count == 0 || task.regcmd_count as usize > Program::WORDS_MAX {
            return None;
        }
        let after = objects.partition_point(|(_, range)| range.start <= words.start);
        let (object, range) = objects[..after].last()?;
        let mut bytes = vec![0; (words.end - words.start) as usize];
        let there = words.end <= range.end && read(object, words.start - range.start, &mut bytes);
        there.then(|| words_of(&bytes))
    };
    let mut regs = RegisterFile::new();
    tasks.iter().enumerate().map(move |(index, &task)| {
        let program = CapturedProgram {
            index,
            task,
            words: words(&task),
            before: regs.clone(),
        };
        if let Some(last) = program.tasks().last() {
            regs = last.regs;
        }
        program
    })
}

fn words_of(bytes: &[u8]) -> Vec<Word> {
    let (words, _) = bytes.as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    words.map(Word::from_bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_where_the_npu_cannot_fetch_it_is_found() {
        let rules = |address| {
            let tasks = [sys::Task {
                regcmd: address,
                regcmd_count: 2,
            }];
            let objects = [((), 0..Iova::END)].into_iter();
            let programs = programs(&tasks, objects, |_, _, _| true);
            let found = programs.flat_map(|program| program.lint());
            found.map(|finding| finding.rule).collect::<Vec<_>>()
        };
        assert!(rules(0x1008).contains(&"T06-program-address"));
        assert!(!rules(0x1010).contains(&"T06-program-address"));
    }
}
