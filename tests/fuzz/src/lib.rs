// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the fuzz targets do with their bytes.
//!
//! `fuzz/` has the programs that a fuzzer drives; they need a nightly
//! compiler and do nothing but call the functions here. `cargo test` replays
//! the corpora and every input that once failed through the same functions.
//!
//! A target panics if an invariant of the code under test is broken, and
//! returns for any bytes otherwise.

// An invariant that does not hold is a panic: that is what fuzzers look for.
#![allow(clippy::panic, clippy::unwrap_used, clippy::missing_panics_doc)]

mod board;
mod capture;
mod disassembly;
mod ioctl_sequence;
mod link;
mod pc_stream;
mod words;

pub use capture::capture;
pub use disassembly::disassembly;
pub use ioctl_sequence::ioctl_sequence;
pub use link::link;
pub use pc_stream::pc_stream;

/// A fuzz target.
pub type FuzzTarget = fn(&[u8]);

/// All targets by name, which is also that of their corpus.
pub const TARGETS: [(&str, FuzzTarget); 5] = [
    ("pc_stream", pc_stream),
    ("ioctl_sequence", ioctl_sequence),
    ("disassembly", disassembly),
    ("link", link),
    ("capture", capture),
];
