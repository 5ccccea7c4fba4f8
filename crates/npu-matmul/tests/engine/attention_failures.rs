// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attention on a device that is slow or wrong.

use npu_matmul::{Error, PlanOptions};

use crate::common::lying::lying_engine;
use crate::common::problem::{LONG, attend};
use crate::common::slow::{Entry, slow_engine};

/// On an uncalibrated NPU the first task of each kind is checked.
#[test]
fn wrong_scores_and_wrong_values_are_found() {
    let options = || PlanOptions::uncalibrated(600_000_000);
    let engine = lying_engine(options(), |_, _, _| None);
    attend(&engine).unwrap();
    let checked = engine.counters().checked_tasks;
    assert!(checked >= 2, "{checked}");
    attend(&engine).unwrap();
    assert_eq!(engine.counters().checked_tasks, checked);

    // The depth of the scores is the head size.
    let scores = lying_engine(options(), |_, task, _| {
        (task.k_padded as usize == LONG.head_dim).then_some([0, 3])
    });
    let values = lying_engine(options(), |_, task, _| {
        (task.k_padded as usize != LONG.head_dim).then_some([0, 3])
    });
    for engine in [scores, values] {
        // Every workaround gives a wrong result, too.
        let mut errors = std::iter::from_fn(|| attend(&engine).err()).take(9);
        assert!(matches!(errors.next(), Some(Error::WrongResult { .. })));
        assert!(matches!(errors.last(), Some(Error::Distrusted { .. })));
    }
}

/// On one device whose jobs end when a thread waits for them.
#[test]
fn the_next_scores_are_submitted_before_the_last_are_waited_for() {
    let (engine, log) = slow_engine(PlanOptions::default());
    attend(&engine).unwrap();
    let log = log.take();
    let mut running = 0;
    let mut most = 0;
    let waits = log.iter().filter(|entry| **entry == Entry::Ended).count();
    let mut waited = 0;
    for entry in &log {
        match entry {
            Entry::Submitted(jobs) => running += jobs,
            Entry::Ended => {
                running -= 1;
                waited += 1;
                // Except for the last tile, the device has more work.
                assert!(running > 0 || waited + 1 >= waits, "{log:?}");
            }
            _ => {}
        }
        most = most.max(running);
    }
    // Scores of two tiles and values of one, or the other way round.
    assert_eq!((running, most), (0, 3), "{log:?}");
}
