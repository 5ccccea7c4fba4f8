// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's first and only file system.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cpio::newc::{Builder, trailer};

/// File types and permissions.
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;

/// Device nodes that must exist before anything is mounted: the first process has the one as its
/// output, and Rust's runtime needs the other.
const NODES: [(&str, u32, u32); 2] = [("dev/console", 5, 1), ("dev/null", 1, 3)];

/// Files in which `vm-init` finds its command, the command's variables as `NAME=VALUE`, and the
/// files to send when the command has ended.
pub(super) const COMMAND: &str = "vm/command";
pub(super) const ENVIRONMENT: &str = "vm/environment";
pub(super) const WANTED: &str = "vm/wanted";
/// Directories where `vm-init` mounts file systems.
const PLACES: [&str; 4] = ["dev", "proc", "sys", "tmp"];

/// The guest's files by path, including the instructions for `vm-init`.
#[derive(Clone, Debug)]
pub(super) struct Initramfs(BTreeMap<String, Vec<u8>>);

impl Initramfs {
    /// A file system with `init` as the first process.
    pub(super) fn new(init: &Path) -> Result<Self> {
        let mut files = Self(BTreeMap::new());
        files.add(init, "/init")?;
        Ok(files)
    }

    /// Copies the file or directory at `host` to `guest`. Links are replaced by their targets.
    pub(super) fn add(&mut self, host: &Path, guest: &str) -> Result<()> {
        if host.is_dir() {
            let entries =
                fs::read_dir(host).with_context(|| format!("reading {}", host.display()))?;
            for entry in entries {
                let entry = entry?;
                let name = entry.file_name();
                self.add(&entry.path(), &format!("{guest}/{}", name.display()))?;
            }
            return Ok(());
        }
        let bytes = fs::read(host).with_context(|| format!("reading {}", host.display()))?;
        let guest = guest.trim_start_matches('/').to_owned();
        self.0.insert(guest, bytes);
        Ok(())
    }

    /// Writes a list of words for `vm-init`: [`COMMAND`], [`ENVIRONMENT`] or [`WANTED`].
    pub(super) fn set_list(&mut self, name: &str, words: &[impl AsRef<str>]) {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        self.0.insert(name.to_owned(), words.join("\0").into());
    }

    /// The archive (cpio, "newc") that the kernel unpacks.
    pub(super) fn archive(&self) -> Result<Vec<u8>> {
        let mut directories: Vec<PathBuf> = PLACES.iter().map(PathBuf::from).collect();
        for name in self.0.keys() {
            let parents = Path::new(name).ancestors().skip(1);
            directories.extend(parents.map(Path::to_owned));
        }
        directories.retain(|path| path != Path::new(""));
        // In sorted order a directory comes before its contents.
        directories.sort();
        directories.dedup();
        let mut archive = Vec::new();
        for directory in directories {
            let entry = Builder::new(&directory.to_string_lossy()).mode(DIRECTORY);
            archive = entry.write(archive, 0).finish()?;
        }
        for (name, major, minor) in NODES {
            let entry = Builder::new(name)
                .mode(DEVICE)
                .rdev_major(major)
                .rdev_minor(minor);
            archive = entry.write(archive, 0).finish()?;
        }
        for (name, bytes) in &self.0 {
            let length = u32::try_from(bytes.len())
                .with_context(|| format!("{name} has 4 GiB or more, which the format has not"))?;
            let mut writer = Builder::new(name).mode(PROGRAM).write(archive, length);
            std::io::Write::write_all(&mut writer, bytes)?;
            archive = writer.finish()?;
        }
        trailer(archive).context("ending the archive")
    }
}

#[cfg(test)]
mod tests {
    use cpio::newc::Reader;

    use super::*;

    #[test]
    fn directories_come_before_what_is_in_them() {
        let mut files = Initramfs(BTreeMap::new());
        files.0.insert("a/b/c".to_owned(), vec![7; 5]);
        files.set_list(COMMAND, &["x", "y z"]);
        let archive = files.archive().unwrap();
        let mut rest = archive.as_slice();
        let mut seen = Vec::new();
        loop {
            let mut reader = Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut reader, &mut bytes).unwrap();
            let entry = reader.entry();
            seen.push((entry.name().to_owned(), entry.mode(), bytes));
            rest = reader.finish().unwrap();
        }
        let names: Vec<&str> = seen.iter().map(|(name, ..)| name.as_str()).collect();
        let wanted = "a a/b dev proc sys tmp vm dev/console dev/null a/b/c vm/command";
        assert_eq!(names.join(" "), wanted);
        assert_eq!(seen[0].1, DIRECTORY);
        assert_eq!(seen[9], ("a/b/c".to_owned(), PROGRAM, vec![7; 5]));
        assert_eq!(seen[10].2, b"x\0y z");
    }
}
