// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of GGUF files, with their fixes.

use std::io;
use std::path::PathBuf;

/// Why a file cannot be read as a model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GgufError {
    /// It cannot be opened.
    #[error("cannot open {}", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// Reading failed.
    #[error("cannot read the file")]
    Read(#[source] io::Error),
    /// It begins with other bytes.
    #[error("not a GGUF file; convert the model with llama.cpp's convert_hf_to_gguf.py")]
    NotGguf,
    /// It goes with a model, without being one.
    #[error("the file is {0}, not a model; use the GGUF file of the model")]
    NotAModel(&'static str),
    /// A version that is not read here.
    #[error("GGUF version {0} is not supported, only 2 and 3; convert the model again")]
    Version(u32),
    /// Numbers have the other order of bytes.
    #[error("the file is for big-endian machines; download the little-endian one")]
    BigEndian,
    /// The file ends within its head.
    #[error("the file ends within its head; the download is incomplete, so repeat it")]
    HeadCut,
    /// The file ends within its data.
    #[error(
        "the file has {has} bytes, but tensor `{tensor}` ends at {needs}; the download is \
         incomplete, so repeat it"
    )]
    DataCut {
        /// The tensor that is not there in whole.
        tensor: String,
        /// Length that it needs.
        needs: u64,
        /// Length of the file.
        has: u64,
    },
    /// More of something than any model has.
    #[error("the file claims {count} {what}, more than any model has; it is damaged")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: u64,
    },
    /// A value of a type that GGUF does not have.
    #[error("value `{key}` has type {type_id}, which GGUF does not have; the file is damaged")]
    ValueType {
        /// The value's key.
        key: String,
        /// Its type.
        type_id: u32,
    },
    /// Sizes that no tensor has.
    #[error("tensor `{0}` has an impossible size; the file is damaged")]
    Dimensions(String),
    /// A name that is no text.
    #[error("a name in the file is not UTF-8 or has control characters; the file is damaged")]
    Name,
    /// Some files of a split model are not there.
    #[error("the model has {count} files; these are missing in the same folder: {missing}")]
    Parts {
        /// Number of files.
        count: usize,
        /// Names of those that are not there.
        missing: String,
    },
    /// The file is a part of a split model, but its name does not say so.
    #[error(
        "the file is one of {0} of a split model; restore their names, which end in \
         -00001-of-{0:05}.gguf and so on, or join them with llama-gguf-split --merge"
    )]
    Renamed(u64),
}

impl GgufError {
    pub(super) fn too_many(what: &'static str, count: u64) -> Self {
        Self::TooMany { what, count }
    }
}
