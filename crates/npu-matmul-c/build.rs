// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets the library's soname. Keeps the library mapped when a program unloads it, since its threads
//! end later.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librocket_npu.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
