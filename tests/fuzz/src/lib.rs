// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fuzz targets: functions that take a fuzzer's bytes.
//!
//! The programs in `fuzz/` only call these functions from a fuzzer, and need a
//! nightly compiler. `cargo test` replays the corpora and every input that once
//! failed through the same functions.
//!
//! A target panics if an invariant of the code under test is broken, and
//! returns otherwise.

// A broken invariant is a panic: fuzzers look for panics.
#![allow(clippy::panic, clippy::unwrap_used, clippy::missing_panics_doc)]

#[allow(missing_docs, reason = "for the tests of this package")]
pub mod board;
mod capture;
mod disassembly;
mod ioctl_sequence;
mod link;
mod pc_stream;
pub mod words;

pub use capture::capture;
pub use disassembly::disassembly;
pub use ioctl_sequence::ioctl_sequence;
pub use link::link;
pub use pc_stream::pc_stream;

/// A fuzz target.
pub type FuzzTarget = fn(&[u8]);

/// All targets by name. Their corpora have the same names.
pub const TARGETS: [(&str, FuzzTarget); 5] = [
    ("pc_stream", pc_stream),
    ("ioctl_sequence", ioctl_sequence),
    ("disassembly", disassembly),
    ("link", link),
    ("capture", capture),
];
