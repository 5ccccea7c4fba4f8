// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of every program that was measured to work.

use std::fmt::Write;

use rknpu_regcmd::{Before, LintContext, Severity, lint};

/// Users ignore a lint with false alarms.
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
