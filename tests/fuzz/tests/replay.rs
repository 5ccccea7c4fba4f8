// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays the corpora and once failing inputs, on the stable compiler.

#![allow(missing_docs, clippy::unwrap_used)]
// Miri has no file access.
#![cfg(not(miri))]

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use fuzz_targets::TARGETS;

/// One test at a time: a target counts the descriptors of the process.
static ALONE: Mutex<()> = Mutex::new(());

/// The inputs of `target`, one on a line: optional name, and bytes in hex.
fn inputs(kind: &str, target: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(kind);
    let text = fs::read_to_string(folder.join(target).with_extension("txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

fn replay(kind: &str) {
    for (name, target) in TARGETS {
        for line in inputs(kind, name) {
            // Shown if the target panics.
            println!("{name}: {line}");
            let hex = line.split_whitespace().last().unwrap();
            let bytes: Vec<u8> = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect();
            target(&bytes);
        }
    }
}

#[test]
fn corpora_pass() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    replay("corpus");
    for (name, _) in TARGETS {
        assert!(!inputs("corpus", name).is_empty(), "{name} has no corpus");
    }
}

#[test]
fn fixed_failures_pass() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    replay("regressions");
}

#[test]
fn nothing_and_anything_pass() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (_, target) in TARGETS {
        target(&[]);
        for byte in 0..=u8::MAX {
            target(&[byte; 64]);
        }
    }
}
