// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs all results into one file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use super::private::PrivateWords;
use super::state::EvidenceOutcome;
use crate::base::exit::Failure;
use crate::base::output::write_private;
use crate::base::sudo::as_caller;

/// The index, which is the first file of the archive.
#[derive(Debug, Serialize)]
pub(crate) struct EvidenceIndex {
    pub(crate) version: &'static str,
    /// Cargo profile of this program; speed is measured with `dist`.
    pub(crate) build: &'static str,
    pub(crate) date: String,
    pub(crate) board: String,
    pub(crate) device: String,
    pub(crate) is_model: bool,
    pub(crate) steps: BTreeMap<String, EvidenceOutcome>,
    pub(crate) files: Vec<String>,
}

/// Packs the index and the files of `folder` that it names. Apart from its name
/// and date the archive does not reveal who made it, or when.
pub(crate) fn pack(
    folder: &Path,
    index: &EvidenceIndex,
    private: &PrivateWords,
) -> Result<PathBuf, Failure> {
    let name = format!("npu-evidence-{}-{}", index.date, slug(&index.board));
    let pack = || -> anyhow::Result<Vec<u8>> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        let mut add = |file: &str, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            header.set_mtime(0);
            archive.append_data(&mut header, format!("{name}/{file}"), bytes)
        };
        let text = serde_json::to_vec(index)?;
        add("index.json", &private.leave_out(&text))?;
        for file in &index.files {
            add(file, &fs::read(folder.join(file))?)?;
        }
        Ok(archive.into_inner()?.finish()?)
    };
    let bytes = as_caller(pack).map_err(Failure::output("the archive"))?;
    let path = folder.join(format!("{name}.tar.gz"));
    write_private(&path, &bytes)?;
    Ok(path)
}

/// A name that every file system accepts.
fn slug(name: &str) -> String {
    const MOST: usize = 40;
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let slug = words.join("-").to_ascii_lowercase();
    slug.chars().take(MOST).collect()
}
