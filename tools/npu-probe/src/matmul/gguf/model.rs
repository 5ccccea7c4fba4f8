// SPDX-License-Identifier: MIT OR Apache-2.0
//! A model as the heads of its files describe it.

use std::collections::HashMap;

use anyhow::bail;
use npu_offload::NumberFormat;

/// A value of the head; only types that are used are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GgufValue {
    /// An integer that is not negative.
    Number(u64),
    /// A short text.
    Text(String),
    /// Anything else: arrays, floats, long texts.
    Other,
}

/// The description of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GgufTensor {
    pub(crate) name: String,
    /// Elements of each dimension, the fastest first; none is 0.
    pub(crate) dimensions: [usize; 4],
    /// `enum ggml_type`.
    pub(crate) type_id: u32,
    /// Offset of its data from the first tensor's.
    pub(super) offset: u64,
}

impl GgufTensor {
    /// Its number format and the format's name; `None` if it is unknown.
    pub(crate) fn format(&self) -> Option<(&'static str, NumberFormat)> {
        NumberFormat::of_ggml(self.type_id)
    }

    /// Number of its matrices.
    pub(crate) const fn matrices(&self) -> usize {
        self.dimensions[2] * self.dimensions[3]
    }

    /// Bytes of its data; `None` if its format is unknown.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let [k, rows @ ..] = self.dimensions;
        let elements = rows.iter().map(|size| *size as u64).product::<u64>() * k as u64;
        Some(self.format()?.1.bytes(elements))
    }
}

/// A model: the heads of its files.
#[derive(Debug)]
pub(crate) struct GgufModel {
    pub(super) values: HashMap<String, GgufValue>,
    /// Its tensors, in the order of the files.
    pub(crate) tensors: Vec<GgufTensor>,
    /// Number of files.
    pub(crate) parts: usize,
}

impl GgufModel {
    pub(crate) fn value(&self, key: &str) -> Option<&GgufValue> {
        self.values.get(key)
    }
}

/// Fails if a file has more of something than any model.
pub(crate) fn check_count(what: &str, count: u64, most: u64) -> anyhow::Result<()> {
    if count > most {
        bail!("the file claims {count} {what}, more than any model has; it is damaged");
    }
    Ok(())
}
