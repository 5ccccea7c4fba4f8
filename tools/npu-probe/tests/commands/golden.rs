// SPDX-License-Identifier: MIT OR Apache-2.0
//! Expected output in files. `BLESS=1` accepts the printed output as expected.

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
