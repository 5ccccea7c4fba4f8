// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removes from texts what identifies a user or a machine.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use nix::unistd::{Uid, User};
use serde_json::Value;

use crate::doctor::is_public_path;

const LEFT_OUT: &str = "(left out)";
/// Files with numbers that are unique to a machine.
const NUMBERS: [&str; 5] = [
    "/proc/device-tree/serial-number",
    "/sys/class/dmi/id/product_serial",
    "/sys/class/dmi/id/product_uuid",
    "/etc/machine-id",
    "/proc/sys/kernel/random/boot_id",
];
/// Names that many machines and users have, and that results use as words.
const COMMON: [&str; 5] = ["root", "localhost", "rocket", "model", "npu"];

/// Paths, names and numbers that no result may contain.
#[derive(Debug, Default)]
pub(crate) struct PrivateWords {
    /// Paths, removed wherever they occur; they may contain blanks.
    paths: Vec<String>,
    /// Names and numbers, removed if they are whole words.
    words: Vec<String>,
}

impl PrivateWords {
    /// Collects those of this machine and user, and the given paths.
    pub(crate) fn collect(paths: &[&Path]) -> Self {
        let mut all = Self::default();
        if let Ok(Some(user)) = User::from_uid(Uid::current()) {
            all.add_path(&user.dir);
            all.add_word(&user.name);
        }
        for name in ["USER", "LOGNAME", "SUDO_USER"] {
            all.add_word(&env::var(name).unwrap_or_default());
        }
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        all.add_word(&host);
        all.add_word(host.split('.').next().unwrap_or_default());
        for file in NUMBERS {
            all.add_word(&fs::read_to_string(file).unwrap_or_default());
        }
        for path in paths {
            all.add_path(path);
        }
        // The longest first, since one path may be the start of another.
        all.paths.sort_by_key(|path| std::cmp::Reverse(path.len()));
        all
    }

    fn add_path(&mut self, path: &Path) {
        // `/` as home directory, or no home directory, is not private.
        if let Some(path) = path.to_str().filter(|path| path.len() > 1) {
            self.paths.push(path.to_owned());
        }
    }

    fn add_word(&mut self, word: &str) {
        let word = word.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        if word.len() > 2 && !COMMON.contains(&word) {
            self.words.push(word.to_owned());
        }
    }

    /// A result without private data. JSON stays JSON.
    pub(crate) fn leave_out(&self, bytes: &[u8]) -> Vec<u8> {
        if let Ok(mut json) = serde_json::from_slice::<Value>(bytes) {
            self.of_json(&mut json);
            return format!("{json:#}\n").into_bytes();
        }
        let text = String::from_utf8_lossy(bytes);
        let lines = text.split_inclusive('\n').map(|line| self.of_line(line));
        lines.collect::<String>().into_bytes()
    }

    fn of_json(&self, json: &mut Value) {
        match json {
            Value::String(text) => *text = self.of_line(text),
            Value::Array(all) => all.iter_mut().for_each(|value| self.of_json(value)),
            // The names of the fields come from this program, so they stay.
            Value::Object(all) => all.values_mut().for_each(|value| self.of_json(value)),
            _ => {}
        }
    }

    fn of_line(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for path in &self.paths {
            line = line.replace(path, LEFT_OUT);
        }
        for word in &self.words {
            line = without_word(&line, word);
        }
        let cleaned = |part: &str| {
            let token = part.trim_end_matches(is_blank);
            if is_private(token) {
                LEFT_OUT.to_owned() + &part[token.len()..]
            } else {
                part.to_owned()
            }
        };
        line.split_inclusive(is_blank).map(cleaned).collect()
    }
}

/// Whether a character separates words.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || "\"'`()<>,;=[]{}|".contains(c)
}

/// Whether a token is a path outside the system's directories, or a network
/// address.
fn is_private(token: &str) -> bool {
    let path = token.strip_prefix("file:").unwrap_or(token);
    let shown = path.trim_end_matches(['.', ':', '!', '?']);
    let is_path = path.starts_with('/') && shown.len() > 1;
    // Paths of a list, such as PATH, are checked one by one.
    let paths = || shown.split(':').filter(|path| path.starts_with('/'));
    let mut bytes = token.trim_end_matches(['.', ',']).split([':', '-']);
    let is_byte = |byte: &str| byte.len() == 2 && byte.chars().all(|c| c.is_ascii_hexdigit());
    let is_mac = bytes.clone().count() == 6 && bytes.all(is_byte);
    let host = token.split(['/', ':']).next().unwrap_or_default();
    let [host, whole] = [host, token].map(|text| text.trim_end_matches('.'));
    let is_address = host.parse::<Ipv4Addr>().is_ok() || whole.parse::<Ipv6Addr>().is_ok();
    is_mac || is_address || (is_path && !paths().all(is_public_path)) || token.starts_with("~")
}

/// `text` with `word` replaced wherever it is a whole word.
fn without_word(text: &str, word: &str) -> String {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let (mut out, mut done) = (String::new(), 0);
    for (at, _) in text.match_indices(word) {
        let end = at + word.len();
        let before = text[..at].chars().next_back();
        let is_whole = !is_part(before) && !is_part(text[end..].chars().next());
        out += &text[done..at];
        out += if is_whole { LEFT_OUT } else { word };
        done = end;
    }
    out + &text[done..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> PrivateWords {
        let mut words = PrivateWords::default();
        words.add_path(Path::new("/data/My Models"));
        for word in ["alice", "rock-of-alice", "a1b2c3d4\0", "root", ""] {
            words.add_word(word);
        }
        words
    }

    #[test]
    fn only_private_facts_are_left_out() {
        let plain =
            "17 GB/s at /dev/accel/accel0, /usr/lib/x.so: 0.27.0 is ok; malice, rocket 1.0\n";
        assert_eq!(words().leave_out(plain.as_bytes()), plain.as_bytes());
        for private in [
            "'/data/My Models/x.gguf'",
            "/home/bob/x",
            "path=/srv/y.",
            "alice@rock-of-alice:",
            "a1b2c3d4",
            "de:ad:be:ef:00:01",
            "192.168.0.7:80",
            "fe80::1",
            "file:///home/x",
            "/usr/../home/x",
            "~bob/x",
            "/usr/bin:/home/bob/bin",
        ] {
            let line = format!("a {private} b\n");
            let out = String::from_utf8(words().leave_out(line.as_bytes())).unwrap();
            assert!(out.contains(LEFT_OUT), "{out}");
            for secret in [
                "alice", "bob", "srv", "a1b2", "ad:be", "192", "fe80", "home", "My",
            ] {
                assert!(!out.contains(secret), "{out}");
            }
        }
        let json = br#"{"alice": ["alice", 1.5, {"x": "in /home/bob"}]}"#;
        let out: Value = serde_json::from_slice(&words().leave_out(json)).unwrap();
        let want =
            serde_json::json!({ "alice": [LEFT_OUT, 1.5, { "x": format!("in {LEFT_OUT}") }] });
        assert_eq!(out, want);
    }
}
