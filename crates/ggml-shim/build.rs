// SPDX-License-Identifier: MIT OR Apache-2.0
//! ggml can unload a backend while our threads still run, so the library stays mapped.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
