// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a command printed when it was right. `BLESS=1` takes what it prints now as right.

use std::fs;
use std::path::Path;

/// Checks that a file has this text.
#[track_caller]
pub(crate) fn compare(file: &Path, printed: &str) {
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        fs::write(file, printed).unwrap();
        return;
    }
    let golden = fs::read_to_string(file).unwrap();
    let name = file.display();
    assert_eq!(printed, golden, "{name} (BLESS=1 takes it as right)");
}
