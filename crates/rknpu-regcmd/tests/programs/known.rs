// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of every program that was measured to work, and of the text of tasks.

use rknpu_regcmd::task::Task;
use rknpu_regcmd::{Before, TaskType, Word, tasks};

use crate::helpers::{CHIP, task, warnings};
use crate::random::KNOWN;

/// Users ignore a lint with false alarms.
#[test]
fn no_known_program_gets_a_warning_or_an_error() {
    for sample in &*KNOWN {
        for before in [Before::Unknown, Before::Reset] {
            assert_eq!(warnings(&sample.words, before), [""; 0], "{}", sample.name);
        }
    }
}

#[test]
fn a_task_says_what_it_computes() {
    let says = |words: &[Word], text| {
        let registers = tasks(words).next().unwrap();
        let all = Task::all(&registers.regs, registers.enable);
        let all: Vec<_> = all.map(|task| task.unwrap().to_string()).collect();
        assert_eq!(all, [text]);
    };
    says(
        task(TaskType::Int8ToInt32, 8, 64, 32)
            .program(&CHIP)
            .unwrap()
            .words(),
        "convolution: 1x8x64 of int8, kernel 1x1, to 1x8x32 of int32",
    );
    says(
        &families::flying::int32_add(8, 32, 4, None),
        "elementwise: 8x1x32 of int32 to 8x1x32 of int32",
    );
}
