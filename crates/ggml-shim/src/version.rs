// SPDX-License-Identifier: MIT OR Apache-2.0
//! The version of the loaded ggml.

use std::fmt;

/// A version of ggml, from `ggml_version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GgmlVersion {
    text: String,
    number: Option<(u32, u32, u32)>,
}

impl GgmlVersion {
    /// Major, minor and patch; `None` if the text has another form.
    pub(crate) fn number(&self) -> Option<(u32, u32, u32)> {
        self.number
    }
}

impl From<&str> for GgmlVersion {
    fn from(text: &str) -> Self {
        // A patch level may have a suffix such as `-dev`, or be missing.
        let digits = |part: &str| {
            let end = part.find(|c: char| !c.is_ascii_digit());
            part[..end.unwrap_or(part.len())].parse().ok()
        };
        let mut parts = text.split('.');
        let mut next = || parts.next().map(digits);
        let number = match (next(), next(), next()) {
            (Some(Some(major)), Some(Some(minor)), patch) => {
                Some((major, minor, patch.flatten().unwrap_or(0)))
            }
            _ => None,
        };
        Self {
            text: text.to_owned(),
            number,
        }
    }
}

impl fmt::Display for GgmlVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_where_there_are_some() {
        for (text, number) in [
            ("0.9.4", Some((0, 9, 4))),
            ("0.27.0-dev", Some((0, 27, 0))),
            ("1.2", Some((1, 2, 0))),
            ("1.2.x", Some((1, 2, 0))),
            ("of unknown version", None),
            ("", None),
            ("7", None),
            ("99999999999.1.1", None),
        ] {
            let version = GgmlVersion::from(text);
            assert_eq!(version.number(), number, "{text}");
            assert_eq!(version.to_string(), text);
        }
    }
}
