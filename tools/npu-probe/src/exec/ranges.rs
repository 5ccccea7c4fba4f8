// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory ranges on the command line of `npu-probe exec`.

use std::path::PathBuf;
use std::str::FromStr;

/// A value of `--bo`: a buffer with the content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BufferFile {
    pub(crate) iova: u32,
    pub(crate) file: PathBuf,
    /// Whether the file is updated after the run.
    pub(crate) write_back: bool,
}

/// A value of `--out`: a range of memory that is written to a file after the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputRegion {
    pub(crate) iova: u32,
    /// Bytes, at least 1.
    pub(crate) len: u32,
    pub(crate) file: PathBuf,
}

pub(crate) fn iova(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed
        .ok()
        // The number parsers accept a sign.
        .filter(|_| !text.contains('+'))
        .ok_or_else(|| {
            format!("`{text}` is not a number below 2^32, decimal or hexadecimal after 0x")
        })
}

impl FromStr for BufferFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "expected the form IOVA:FILE or IOVA:FILE:rw";
        let (start, file) = text.split_once(':').ok_or(FORM)?;
        let updated = file.strip_suffix(":rw");
        let file = updated.unwrap_or(file);
        if file.is_empty() {
            return Err(FORM.to_owned());
        }
        Ok(Self {
            iova: iova(start)?,
            file: file.into(),
            write_back: updated.is_some(),
        })
    }
}

impl FromStr for OutputRegion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "expected the form IOVA:LEN:FILE";
        let (start, rest) = text.split_once(':').ok_or(FORM)?;
        let (len, file) = rest.split_once(':').ok_or(FORM)?;
        if file.is_empty() {
            return Err(FORM.to_owned());
        }
        let len = iova(len)?;
        if len == 0 {
            return Err("the length is 0".to_owned());
        }
        Ok(Self {
            iova: iova(start)?,
            len,
            file: file.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        for (text, file, write_back) in [
            ("0x1000:a:b.bin", "a:b.bin", false),
            ("4096:a.bin:rw", "a.bin", true),
        ] {
            let (iova, file) = (0x1000, file.into());
            let buffer = BufferFile {
                iova,
                file,
                write_back,
            };
            assert_eq!(text.parse::<BufferFile>().unwrap(), buffer);
        }
        let out = "0xfffff000:0x1000:x:y".parse::<OutputRegion>().unwrap();
        let (iova, len, file) = (0xffff_f000, 0x1000, "x:y".into());
        assert_eq!(out, OutputRegion { iova, len, file });
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "", "0x1000", "0x1000:", ":x", "+1:x", "0x+1:x", "0x:x", "0x0::rw",
        ] {
            assert!(text.parse::<BufferFile>().is_err(), "{text}");
        }
        for text in ["0:1", "0:0:x", "0:x:y", "0:1:", "0:4294967296:x"] {
            assert!(text.parse::<OutputRegion>().is_err(), "{text}");
        }
    }
}
