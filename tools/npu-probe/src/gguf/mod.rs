// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the heads of a GGUF model's files: its description, without weights. Follows
//! docs/gguf.md of ggml, versions 2 and 3.
//!
//! The files are not trusted: each count and length has a limit, and the file must be at
//! least as long as its head says.

mod head;
mod split;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, bail};
use npu_offload::NumberFormat;

use head::{GgufHead, MAX_TENSORS};

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
    offset: u64,
}

impl GgufTensor {
    /// Its number format and the format's name; `None` if it is unknown.
    pub(crate) fn format(&self) -> Option<(&'static str, NumberFormat)> {
        NumberFormat::of_ggml(self.type_id)
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
    values: HashMap<String, GgufValue>,
    /// Its tensors, in the order of the files.
    pub(crate) tensors: Vec<GgufTensor>,
    /// Number of files.
    pub(crate) parts: usize,
}

impl GgufModel {
    pub(crate) fn value(&self, key: &str) -> Option<&GgufValue> {
        self.values.get(key)
    }

    /// Reads the heads of all files of the model to which `path` belongs.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let model = Self::read_parts(path)?;
        if let Some(kind) = model.other_kind() {
            bail!("the file is {kind}, not a model; use the GGUF file of the model");
        }
        Ok(model)
    }

    /// The kind of a file that is not a model, from the keys that llama.cpp's converters
    /// write.
    fn other_kind(&self) -> Option<&'static str> {
        let kinds = [
            ("general.type", "adapter", "an adapter (LoRA)"),
            ("general.type", "imatrix", "an importance matrix"),
            ("general.architecture", "controlvector", "a control vector"),
        ];
        let kind = kinds
            .into_iter()
            .find(|(key, text, _)| match self.value(key) {
                Some(GgufValue::Text(value)) => value == text,
                _ => false,
            });
        kind.map(|(_, _, kind)| kind)
    }

    fn read_parts(path: &Path) -> anyhow::Result<Self> {
        let Some(parts) = split::parts(path)? else {
            let head = read_head(path)?;
            if let Some(GgufValue::Number(count @ 2..)) = head.values.get(SPLIT_COUNT) {
                bail!(
                    "the file is one of {count} of a split model; restore their names, which end \
                     in -00001-of-{count:05}.gguf and so on, or join them with llama-gguf-split \
                     --merge"
                );
            }
            return Ok(Self::of(head));
        };
        let (first, others) = parts.split_first().context("a model of no files")?;
        let mut model = Self::of(read_head(first)?);
        for part in others {
            model.tensors.extend(read_head(part)?.tensors);
            model.parts += 1;
            check_count("tensors", model.tensors.len() as u64, MAX_TENSORS)?;
        }
        Ok(model)
    }

    fn of(head: GgufHead) -> Self {
        Self {
            values: head.values,
            tensors: head.tensors,
            parts: 1,
        }
    }
}

/// Key of the number of files of a model.
const SPLIT_COUNT: &str = "split.count";

/// Fails if a file has more of something than any model.
pub(crate) fn check_count(what: &str, count: u64, most: u64) -> anyhow::Result<()> {
    if count > most {
        bail!("the file claims {count} {what}, more than any model has; it is damaged");
    }
    Ok(())
}

/// The head of one file; checks that the file has all its data.
fn read_head(path: &Path) -> anyhow::Result<GgufHead> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let bytes = file.metadata()?.len();
    let head = GgufHead::read(BufReader::new(file))?;
    head.check_data(bytes)?;
    Ok(head)
}
