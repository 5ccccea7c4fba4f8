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

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

/// Directory of the lists and of expected output.
pub(crate) fn lists() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doctor/machines")
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
        let removed = if is_directory {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
        removed.unwrap();
    }

    /// All regular files.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut directories = vec![self.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let entry = entry.unwrap();
                match entry.file_type().unwrap() {
                    kind if kind.is_dir() => directories.push(entry.path()),
                    kind if kind.is_file() => files.push(entry.path()),
                    _ => {}
                }
            }
        }
        files.sort();
        files
    }
}

/// The bytes of a text with escapes.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (letter, after) = rest.split_first().unwrap();
        rest = after;
        bytes.push(match letter {
            b'n' => b'\n',
            b't' => b'\t',
            b'0' => 0,
            b'x' => {
                let (digits, after) = rest.split_at(2);
                rest = after;
                u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            }
            _ => panic!("{text}"),
        });
    }
    bytes
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(content).unwrap();
    packed.finish().unwrap()
}
