// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why this library does not serve the program that loaded it.

use rocket_uapi::DiscoverError;

use crate::version::GgmlVersion;

/// Why this library does not serve the program that loaded it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The process has no ggml that can be found.
    #[error(
        "no ggml found in this process: the program must load ggml as shared libraries \
         (libggml-base); one with ggml linked in statically cannot use this backend"
    )]
    NoGgml,
    /// More than one ggml.
    #[error(
        "this process has {copies} copies of ggml, and this backend cannot determine which one \
         loads it; use a program that shares one ggml library"
    )]
    SeveralGgml {
        /// Number of copies.
        copies: usize,
    },
    /// ggml is older than the first layout.
    #[error(
        "ggml {version} is older than 0.9.1, the first version that this backend supports. Use a \
         llama.cpp of October 2025 or later"
    )]
    TooOld {
        /// The version that `ggml_version` says.
        version: GgmlVersion,
    },
    /// ggml has an unknown layout.
    #[error(
        "ggml {version} has an unknown backend interface: it does not export the functions of \
         that version. Use an unmodified llama.cpp, or a newer version of this backend"
    )]
    UnknownLayout {
        /// The version that `ggml_version` says.
        version: GgmlVersion,
    },
    /// A function of ggml does not do what the layout says.
    #[error(
        "ggml {version} has an unknown backend interface: {function} does not call \
         or read what this backend expects. Use an earlier llama.cpp, or a newer version of this \
         backend"
    )]
    OtherTables {
        /// The version that `ggml_version` says.
        version: GgmlVersion,
        /// ggml's function.
        function: String,
    },
    /// A function is missing.
    #[error(
        "ggml {version} lacks a function that this backend calls. Use an unmodified llama.cpp, or \
         a newer version of this backend"
    )]
    Incomplete {
        /// The version that `ggml_version` says.
        version: GgmlVersion,
    },
    /// A required operation has no number.
    #[error(
        "ggml {version} lacks the operation {name}, which this backend needs. Use an unmodified \
         llama.cpp, or a newer version of this backend"
    )]
    NoSuchOp {
        /// The version that `ggml_version` says.
        version: GgmlVersion,
        /// ggml's name of the operation.
        name: &'static str,
    },
    /// No device was named, and the kernel has none.
    #[error("{0}. (GGML_ROCKET_DEVICE=model computes on the software model, which is for testing)")]
    NoNpu(DiscoverError),
    /// The named device does not exist, or could not be set up.
    #[error("{0}")]
    Device(String),
}
