// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of the files of a split model, as llama-gguf-split gives them.

use std::path::{Path, PathBuf};

use anyhow::bail;

use super::check_count;

/// More files than any model has.
const MAX_PARTS: u64 = 1000;
/// Most missing files that an error names.
const MAX_NAMED: usize = 4;

/// All files of the model to which `path` belongs, in order; `None` if its name is not
/// that of a split model.
pub(super) fn parts(path: &Path) -> anyhow::Result<Option<Vec<PathBuf>>> {
    let name = path.file_name().and_then(|name| name.to_str());
    let Some((prefix, count)) = name.and_then(split_name) else {
        return Ok(None);
    };
    check_count("files", count as u64, MAX_PARTS)?;
    let names = (1..=count).map(|index| format!("{prefix}-{index:05}-of-{count:05}.gguf"));
    let paths: Vec<_> = names.map(|name| path.with_file_name(name)).collect();
    let absent = paths.iter().filter(|path| !path.exists());
    let names: Vec<_> = absent
        .filter_map(|path| path.file_name()?.to_str())
        .collect();
    if names.is_empty() {
        return Ok(Some(paths));
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
