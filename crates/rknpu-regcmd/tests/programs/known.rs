// SPDX-License-Identifier: MIT OR Apache-2.0
//! What holds for every program that was measured to work.

use std::fmt::Write;

use rknpu_regcmd::{Before, DmaEngine, EnableMask, LintContext, Severity, extents, lint, tasks};

/// A lint that cries wolf is not read.
#[test]
fn no_known_program_gets_a_warning_or_an_error() {
    let mut false_alarms = String::new();
    for before in [Before::Unknown, Before::Reset] {
        let context = LintContext {
            before,
            ..LintContext::default()
        };
        for sample in families::all() {
            for finding in lint(&sample.words, &context) {
                if finding.severity > Severity::Note {
                    writeln!(false_alarms, "{}: {finding}", sample.name).unwrap();
                }
            }
        }
    }
    assert!(false_alarms.is_empty(), "{false_alarms}");
}

#[test]
fn what_known_programs_touch_is_known() {
    for sample in families::all() {
        for task in tasks(&sample.words) {
            let extents = extents(&task.regs, task.enable)
                .unwrap_or_else(|error| panic!("{}: {error}", sample.name));
            let engines: Vec<DmaEngine> = extents.iter().map(|e| e.engine).collect();
            let conv = task.enable.contains(EnableMask::CNA);
            assert_eq!(
                engines.contains(&DmaEngine::Weight),
                conv && !reuses(&task).1
            );
            assert_eq!(
                engines.contains(&DmaEngine::Feature),
                conv && !reuses(&task).0
            );
            assert!(
                engines.contains(&DmaEngine::DpuWrite) || engines.contains(&DmaEngine::PpuWrite)
            );
        }
    }
}

fn reuses(task: &rknpu_regcmd::TaskRegisters) -> (bool, bool) {
    let cbuf = task.regs.get::<rknpu_regcmd::regs::cna::CbufCon0>();
    (cbuf.data_reuse() == 1, cbuf.weight_reuse() == 1)
}
