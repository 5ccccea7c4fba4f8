// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names the interface of the library; threads of ours end in their own time, so that
//! it stays mapped when a program unloads it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librocket_npu.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
