// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the header matches the sources (`BLESS=1` writes it).

use std::fs;
use std::path::Path;

use cbindgen::{Builder, Config};

#[test]
fn the_header_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = Config::from_file(root.join("cbindgen.toml")).unwrap();
    let bindings = Builder::new()
        .with_config(config)
        .with_src(root.join("src/lib.rs"))
        .generate()
        .unwrap();
    let mut header = Vec::new();
    bindings.write(&mut header);
    let file = root.join("include/rocket_npu.h");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&file, &header).unwrap();
    }
    assert!(
        fs::read(&file).unwrap() == header,
        "{} is out of date: BLESS=1 writes it",
        file.display()
    );
}
