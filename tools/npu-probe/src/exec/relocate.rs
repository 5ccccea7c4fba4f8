// SPDX-License-Identifier: MIT OR Apache-2.0
//! Relocates a program: each active DMA engine gets the new base address of its buffer.
//!
//! The accesses of an engine are computed from the registers, so a number that only looks like
//! an address is not changed.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use rknpu_regcmd::{Iova, Word, extents, tasks};
use serde::Serialize;

/// A buffer and its new address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MovedBuffer {
    /// Start address of the buffer in the program.
    pub(crate) from: u32,
    /// Actual start address.
    pub(crate) to: u32,
    /// Length, bytes.
    pub(crate) len: u32,
}

/// A word that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RelocatedWord {
    /// Index of the word.
    pub(crate) word: usize,
    /// The address register that it writes.
    pub(crate) register: String,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// Changes `words` so that they touch the same bytes of the buffers at their new addresses.
/// Changes nothing if no buffer moved.
pub(crate) fn relocate(
    words: &mut [Word],
    buffers: &[MovedBuffer],
) -> anyhow::Result<Vec<RelocatedWord>> {
    if buffers.iter().all(|buffer| buffer.from == buffer.to) {
        return Ok(Vec::new());
    }
    let mut changes = BTreeMap::new();
    for (task, asked) in tasks(words).enumerate() {
        let extents = extents(&asked.regs, asked.enable)
            .with_context(|| format!("the memory accesses of task {task} are unknown"))?;
        for extent in extents {
            let mut candidates = buffers.iter();
            let buffer = candidates.find(|buffer| extent.within(Iova(buffer.from), buffer.len));
            let buffer = buffer.with_context(|| {
                format!("task {task}: {extent} is not within one of the buffers")
            })?;
            let register = extent.engine.base();
            let written = words.get(..asked.words.end).unwrap_or_default().iter();
            let last = written
                .enumerate()
                .rev()
                .find(|(_, word)| register.is_written_by(**word));
            let (word, before) = last
                .with_context(|| format!("task {task}: {extent}, but no word writes {register}"))?;
            let from = before.value();
            let to = from.wrapping_sub(buffer.from).wrapping_add(buffer.to);
            let change = RelocatedWord {
                word,
                register: register.to_string(),
                from,
                to,
            };
            let old: Option<RelocatedWord> = changes.insert(word, change);
            ensure!(
                old.is_none_or(|old| old.to == to),
                "word {word} sets {register} for two tasks that need different addresses"
            );
        }
    }
    let mut changes: Vec<RelocatedWord> = changes.into_values().collect();
    changes.retain(|change| change.from != change.to);
    for change in &changes {
        if let Some(word) = words.get_mut(change.word) {
            *word = Word::new(word.target(), word.offset(), change.to);
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rknpu_regcmd::{BufferRef, MatmulType};

    use crate::experiment::matmul::matmul;

    const PAGE: u32 = 4096;

    /// The words of a matmul with its matrices 64 bytes behind `places`: of C, A and B.
    fn words(ty: MatmulType, places: [u32; 3]) -> Vec<Word> {
        let mut experiment = matmul(ty, 64, 64, &[64]).experiment().unwrap();
        let place = |to: BufferRef| Some(Iova(places[to.buffer.0 as usize] + 64 + to.offset));
        experiment.task().words(place).unwrap()
    }

    fn moved(from: [u32; 3], to: [u32; 3]) -> [MovedBuffer; 3] {
        [0, 1, 2].map(|index| MovedBuffer {
            from: from[index],
            to: to[index],
            len: 8 * PAGE,
        })
    }

    #[test]
    fn a_changed_program_is_the_one_for_the_new_addresses() {
        let from = [0x0100_0000, 0x4000_0000, 0xfff0_0000];
        for ty in MatmulType::ALL {
            for to in [
                [0, 8 * PAGE, 16 * PAGE],
                [0x8000_0000, 0x4000_0000, 0x0100_0000],
            ] {
                let mut changed = words(ty, from);
                let changes = relocate(&mut changed, &moved(from, to)).unwrap();
                assert_eq!(changed, words(ty, to));
                let moves = from.iter().zip(to).filter(|&(&from, to)| from != to);
                assert_eq!(changes.len(), moves.count());
            }
        }
    }

    #[test]
    fn tasks_share_addresses_and_what_cannot_be_changed_is_refused() {
        let from = [0x0100_0000, 0x0200_0000, 0x0300_0000];
        let to = [0, 8 * PAGE, 16 * PAGE];
        let one = words(MatmulType::Int8ToInt32, from);
        // Words are not decoded if no buffer moved.
        let mut nonsense = vec![Word::from_bits(u64::MAX); 3];
        assert_eq!(relocate(&mut nonsense, &moved(to, to)).unwrap(), []);
        // The second task keeps the first one's addresses.
        let mut words = [&one[..], &one[one.len() - 2..]].concat();
        assert_eq!(relocate(&mut words, &moved(from, to)).unwrap().len(), 3);
        // The written range does not fit one buffer.
        let mut short = moved(from, to);
        short[0].len = 2 * PAGE;
        let error = relocate(&mut words, &short).unwrap_err().to_string();
        assert!(error.contains("task 0") && error.contains("not within"));
        let mut unwritten = one;
        unwritten.retain(|word| word.offset() != 0x4020);
        let mut at_zero = moved([0, 0x0200_0000, 0x0300_0000], to);
        at_zero[0].to = 0x0100_0000;
        let error = relocate(&mut unwritten, &at_zero).unwrap_err().to_string();
        assert!(
            error.contains("no word writes DPU.DST_BASE_ADDR"),
            "{error}"
        );
    }
}
