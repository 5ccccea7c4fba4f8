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
        "{copies} copies of ggml in this process, and no way to tell which of them loads this \
         backend; use one that shares its ggml"
    )]
    SeveralGgml {
        /// Number of copies.
        copies: usize,
    },
    /// ggml is older than the first layout.
    #[error(
        "ggml {version} is older than 0.9.1, the first version whose backend interface this \
         backend speaks. Use a llama.cpp of October 2025 or later"
    )]
    TooOld {
        /// The version that `ggml_version` says.
        version: GgmlVersion,
    },
    /// ggml has an unknown layout.
    #[error(
        "ggml {version} lays out its backend interface in a way that this backend does not know: \
         it does not export the functions of that version. Use a llama.cpp as it is distributed, \
         or a newer version of this backend"
    )]
    UnknownLayout {
        /// The version that `ggml_version` says.
        version: GgmlVersion,
    },
    /// A function of ggml does not do what the layout says.
    #[error(
        "ggml {version} has tables that this backend does not know: {function} does not call or \
         read what it did. Use a llama.cpp of before, or a newer version of this backend"
    )]
    OtherTables {
        /// The version that `ggml_version` says.
        version: GgmlVersion,
        /// ggml's function.
        function: String,
    },
    /// A function is missing.
    #[error("ggml {version} lacks a function of its backend interface that this backend calls")]
    Incomplete {
        /// The version that `ggml_version` says.
        version: GgmlVersion,
    },
    /// A required operation has no number.
    #[error("ggml {version} knows no operation named {name}; this backend needs it")]
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
