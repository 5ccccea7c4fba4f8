// SPDX-License-Identifier: MIT OR Apache-2.0
//! Not yet written.

fn main() {}
