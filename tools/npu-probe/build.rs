// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes cargo's profile to the program as BUILD_PROFILE, since speed is measured
//! with one of them.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // <target>/<profile>/build/<package>/out
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    let folder = Path::new(&out).ancestors().nth(3);
    let profile = folder.and_then(Path::file_name).unwrap_or_default();
    println!(
        "cargo::rustc-env=BUILD_PROFILE={}",
        profile.to_string_lossy()
    );
}
