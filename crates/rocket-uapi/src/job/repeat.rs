// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that may run a second time, with the same result.
//!
//! A job may run again if each program reads, the second time, the bytes that
//! it read the first time. That holds if no program reads what it or a later
//! program of the job writes: a byte that is read was then written by an
//! earlier program, which by induction writes the same again before, or by
//! none at all. Extents err towards larger, so at worst a job is not run again.

use rknpu_regcmd::{Direction, Extent};

use crate::program_bo::Placed;

/// Whether programs that run in this order compute the same a second time.
pub(super) fn is_repeatable(programs: &[Placed]) -> bool {
    programs.iter().enumerate().all(|(index, program)| {
        ranges(&program.extents, Direction::Read).all(|read| {
            programs[index..]
                .iter()
                .flat_map(|later| ranges(&later.extents, Direction::Write))
                .all(|write| !overlap(read, write))
        })
    })
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

fn ranges(extents: &[Extent], direction: Direction) -> impl Iterator<Item = (u64, u64)> {
    extents
        .iter()
        .filter(move |extent| extent.engine.direction() == direction)
        .map(|extent| (extent.start, extent.end))
}

#[cfg(test)]
mod tests {
    use rknpu_regcmd::{DmaEngine, Iova};

    use super::*;
    use crate::backend::RawTask;

    fn program(read: (u64, u64), write: (u64, u64)) -> Placed {
        let extent = |engine: DmaEngine, (start, end)| Extent { engine, start, end };
        Placed {
            task: RawTask {
                regcmd: Iova(0),
                words: 2,
            },
            extents: vec![
                extent(DmaEngine::Feature, read),
                extent(DmaEngine::DpuWrite, write),
            ],
        }
    }

    #[test]
    fn separate_inputs_and_outputs_run_twice() {
        let first = program((0, 64), (64, 128));
        let second = program((64, 128), (128, 192));
        assert!(is_repeatable(std::slice::from_ref(&first)));
        let chain = [first.clone(), second.clone()];
        assert!(is_repeatable(&chain), "reads an earlier result");
        assert!(!is_repeatable(&[second, first]), "its input is overwritten");
    }

    #[test]
    fn work_in_place_runs_once() {
        assert!(!is_repeatable(&[program((0, 64), (48, 128))]));
        assert!(is_repeatable(&[program((0, 64), (64, 128))]));
    }
}
