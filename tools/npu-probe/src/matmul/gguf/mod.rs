// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the heads of a GGUF model's files: its description, without weights. Follows
//! gguf.md of ggml, versions 2 and 3. Names of the files of a split model are those of
//! llama-gguf-split.
//!
//! The files are not trusted: each count and length has a limit, and the file must be at
//! least as long as its head says.

mod head;
mod model;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use head::MAX_TENSORS;
pub(crate) use model::{GgufModel, GgufTensor, GgufValue, check_count};

impl GgufModel {
    /// Reads the heads of all files of the model to which `path` belongs.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let parts = parts(path)?;
        let (first, others) = parts.split_first().context("a model of no files")?;
        let mut model = Self::read_file(first)?;
        for part in others {
            model.tensors.extend(Self::read_file(part)?.tensors);
            model.parts += 1;
            check_count("tensors", model.tensors.len() as u64, MAX_TENSORS)?;
        }
        if let (1, Some(GgufValue::Number(count @ 2..))) = (model.parts, model.value("split.count"))
        {
            bail!(
                "the file is one of {count} of a split model; restore their names, which end in \
                 -00001-of-{count:05}.gguf and so on, or join them with llama-gguf-split --merge"
            );
        }
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
        let is_text =
            |key, text| matches!(self.value(key), Some(GgufValue::Text(own)) if own == text);
        let kind = kinds.into_iter().find(|&(key, text, _)| is_text(key, text));
        kind.map(|(_, _, kind)| kind)
    }

    /// Reads the head of one file; checks that the file has all its data.
    fn read_file(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let bytes = file.metadata()?.len();
        Self::of_head(BufReader::new(file), bytes)
    }
}

/// More files than any model has.
const MAX_PARTS: u64 = 1000;
/// Most missing files that an error names.
const MAX_NAMED: usize = 4;

/// All files of the model to which `path` belongs, in order: only `path` if its name is not
/// that of a split model.
fn parts(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let name = path.file_name().and_then(|name| name.to_str());
    let Some((prefix, count)) = name.and_then(split_name) else {
        return Ok(vec![path.to_owned()]);
    };
    check_count("files", count as u64, MAX_PARTS)?;
    let names = (1..=count).map(|index| format!("{prefix}-{index:05}-of-{count:05}.gguf"));
    let paths: Vec<_> = names.map(|name| path.with_file_name(name)).collect();
    let absent = paths.iter().filter(|path| !path.exists());
    let names: Vec<_> = absent
        .filter_map(|path| path.file_name()?.to_str())
        .collect();
    if names.is_empty() {
        return Ok(paths);
    }
    let mut missing = names[..names.len().min(MAX_NAMED)].join(", ");
    if names.len() > MAX_NAMED {
        missing += &format!(" and {} more", names.len() - MAX_NAMED);
    }
    bail!("the model has {count} files; these are missing in the same folder: {missing}")
}

/// The part before `-00001-of-00003.gguf`, and the number of files.
fn split_name(name: &str) -> Option<(&str, usize)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (prefix, index) = rest.rsplit_once('-')?;
    let number = |digits: &str| {
        let is_one = digits.len() == 5 && digits.bytes().all(|digit| digit.is_ascii_digit());
        digits.parse::<usize>().ok().filter(|_| is_one)
    };
    let (index, count) = (number(index)?, number(count)?);
    (1..=count).contains(&index).then_some((prefix, count))
}
