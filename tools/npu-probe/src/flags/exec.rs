// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe exec`, and its memory ranges.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use rocket_uapi::Selector;

use super::common::ReportFlags;

/// Options of `exec`.
#[derive(Debug, Args)]
pub(crate) struct ExecFlags {
    /// File with the program: assembler text, hexadecimal words or binary words, like
    /// `decode`; `-` is standard input
    pub(crate) program: PathBuf,

    /// Memory with the content of a file; with `:rw` the file is updated afterwards
    ///
    /// The address is a multiple of 4096, decimal or hexadecimal with 0x. The last page is
    /// filled with zeros beyond the file.
    #[arg(long = "bo", value_name = "IOVA:FILE[:rw]")]
    pub(crate) inputs: Vec<BufferFile>,

    /// Memory to write to a file afterwards; starts with zeros where no --bo is
    #[arg(long = "out", value_name = "IOVA:LEN:FILE")]
    pub(crate) outputs: Vec<OutputRegion>,

    /// Address of the program [default: the highest free pages]
    #[arg(long, value_name = "IOVA", value_parser = iova)]
    pub(crate) at: Option<u32>,

    /// Core that runs the program
    #[arg(long, default_value_t = 0)]
    pub(crate) core: u32,

    /// Print the memory accesses of each memory master
    #[arg(long)]
    pub(crate) trace: bool,

    /// Run the program on this device instead of the model's chip
    ///
    /// The program can hang a core, or leave register values that disturb the next user of the
    /// NPU. Nothing can check that beforehand. The kernel chooses the addresses of buffers.
    /// The program's address registers are changed to match; if that is not possible, nothing
    /// runs. `model` is the software model with its driver.
    #[arg(long, value_name = "PATH|model",
        conflicts_with_all = ["core", "trace", "at", "device"])]
    pub(crate) unsafe_device: Option<Selector>,

    /// Software model to run on, with its options (docs/model.md)
    #[arg(long, value_name = "model[:OPTIONS]")]
    pub(crate) device: Option<Selector>,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

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

fn iova(text: &str) -> Result<u32, String> {
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
        let (file, write_back) = match file.strip_suffix(":rw") {
            Some(file) => (file, true),
            None => (file, false),
        };
        if file.is_empty() {
            return Err(FORM.to_owned());
        }
        Ok(Self {
            iova: iova(start)?,
            file: file.into(),
            write_back,
        })
    }
}

impl FromStr for OutputRegion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "expected the form IOVA:LEN:FILE";
        let mut parts = text.splitn(3, ':');
        let (Some(start), Some(len), Some(file)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(FORM.to_owned());
        };
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
