// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects that a job's programs can touch.

use std::collections::BTreeSet;

use rknpu_regcmd::Iova;

use super::input::JobView;
use crate::programs::{Programs, words_range};

/// Handles of the objects that contain the programs or that these can touch; all
/// handles if that is not known.
pub(super) fn reached(job: &JobView<'_>) -> BTreeSet<u32> {
    let inside = |start: u64, end: u64| {
        job.bos.iter().filter(move |bo| {
            let first = bo.iova.map(|iova| u64::from(iova.0));
            first.is_some_and(|first| start < first + bo.len && first < end)
        })
    };
    let read = |iova: u64, into: &mut [u8]| {
        let end = iova + into.len() as u64;
        let holder = inside(iova, end).find(|bo| {
            let first = bo.iova.map_or(0, |first| u64::from(first.0));
            first <= iova && end <= first + bo.len
        });
        let Some(bo) = holder else { return false };
        let first = bo.iova.map_or(0, |first| u64::from(first.0));
        bo.bytes.read(iova - first, into);
        true
    };
    let mut reached = BTreeSet::new();
    let mut add = |start: u64, end: u64| {
        reached.extend(inside(start, end).map(|bo| bo.handle));
    };
    for program in Programs::new(job.tasks, read) {
        let words = words_range(&program.task);
        add(words.start, words.end);
        for (_, touched) in program.extents() {
            match touched {
                Ok(extents) => extents
                    .iter()
                    .for_each(|extent| add(extent.start, extent.end)),
                Err(_) => add(0, Iova::END),
            }
        }
    }
    reached
}
