// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test machines: directories made from lists of their files.
//!
//! | line | effect |
//! |---|---|
//! | `file PATH TEXT` | makes a file with the text and a newline; `\n`, `\t`, `\0`, `\xHH` in it |
//! | `raw PATH TEXT` | does the same without a newline |
//! | `text PATH`, `gzip PATH` | makes a file, or a gzip file, of the next lines, each after `\| ` |
//! | `link PATH TARGET` | makes a symbolic link |
//! | `remove PATH` | removes a file or directory |
//! | `include NAME` | executes another list |

use std::fs::{self, DirEntry};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

/// Directory of the lists and of expected output.
pub(crate) fn lists() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/machines")
}

/// A directory that replaces a machine's root.
pub(crate) struct TestMachine(TempDir);

impl TestMachine {
    /// Makes the machine of a list in `machines`.
    pub(crate) fn new(name: &str) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.include(name);
        machine
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    fn include(&self, name: &str) {
        let list = lists().join(format!("{name}.tree"));
        self.apply(&fs::read_to_string(list).unwrap());
    }

    /// Executes the lines of a list.
    pub(crate) fn apply(&self, list: &str) {
        let mut lines = list.lines().peekable();
        while let Some(line) = lines.next() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (word, rest) = line.split_once(' ').unwrap();
            let (path, content) = rest.split_once(' ').unwrap_or((rest, ""));
            let mut block = String::new();
            while let Some(next) = lines.next_if(|next| next.starts_with('|')) {
                block += next.get(2..).unwrap_or_default();
                block.push('\n');
            }
            match word {
                "include" => self.include(rest),
                "file" => self.write(path, &[&bytes(content)[..], b"\n"].concat()),
                "raw" => self.write(path, &bytes(content)),
                "text" => self.write(path, block.as_bytes()),
                "gzip" => self.write(path, &gzip(block.as_bytes())),
                "link" => symlink(content, self.make_room(path)).unwrap(),
                "remove" => self.remove(path),
                _ => panic!("{line}"),
            }
        }
    }

    /// The path of a file; makes its directory.
    fn make_room(&self, path: &str) -> PathBuf {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn write(&self, path: &str, content: &[u8]) {
        fs::write(self.make_room(path), content).unwrap();
    }

    fn remove(&self, path: &str) {
        let path = self.path().join(path);
        let is_directory = fs::symlink_metadata(&path).unwrap().is_dir();
        if is_directory {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
}

/// The regular files below a directory.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let below = |entry: DirEntry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => files(&entry.path()),
        kind if kind.is_file() => vec![entry.path()],
        _ => Vec::new(),
    };
    entries.flat_map(below).collect()
}

/// The bytes of a text with escapes.
fn bytes(text: &str) -> Vec<u8> {
    let mut parts = text.split('\\');
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        let (byte, rest) = match part.split_at(1) {
            ("n", rest) => (b'\n', rest),
            ("t", rest) => (b'\t', rest),
            ("0", rest) => (0, rest),
            ("x", rest) => {
                let (digits, rest) = rest.split_at(2);
                (u8::from_str_radix(digits, 16).unwrap(), rest)
            }
            _ => panic!("{text}"),
        };
        bytes.push(byte);
        bytes.extend_from_slice(rest.as_bytes());
    }
    bytes
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(content).unwrap();
    packed.finish().unwrap()
}
