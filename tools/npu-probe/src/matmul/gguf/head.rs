// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the head of one GGUF file.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use anyhow::{Context, ensure};

use super::model::{GgufModel, GgufTensor, GgufValue, check_count};

const HEAD_CUT: &str = "the file ends within its head; the download is incomplete, so repeat it";
const UNREADABLE: &str = "cannot read the file";

const MAGIC: [u8; 4] = *b"GGUF";
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=3;
/// Key of the alignment of the data, and its default.
const ALIGNMENT: (&str, u64) = ("general.alignment", 32);

// Limits: about ten times the values of published models.
const MAX_VALUES: u64 = 1 << 16;
pub(super) const MAX_TENSORS: u64 = 1 << 16;
/// Bytes of a key or of a tensor's name; names in ggml have at most 63.
const MAX_NAME: u64 = 1 << 10;
/// Bytes of a text that is kept; longer texts are not used.
const MAX_TEXT: u64 = 1 << 8;
/// Bytes of the head; most of it is the vocabulary.
const MAX_HEAD: u64 = 1 << 28;
/// Depth of nested arrays.
const MAX_DEPTH: usize = 4;
/// Elements per dimension, elements per matrix, and matrices per tensor.
const MAX_SIZE: u64 = 1 << 24;
const MAX_MATRIX: u64 = 1 << 34;
const MAX_MATRICES: u64 = 1 << 16;

impl GgufModel {
    /// Reads the head of one file. Fails if the file's `file_bytes` bytes are too few for the data
    /// of all tensors of known formats.
    pub(super) fn of_head(from: impl Read, file_bytes: u64) -> anyhow::Result<Self> {
        let mut bytes = HeadReader { from, at: 0 };
        let is_gguf = match bytes.u32() {
            Ok(magic) => magic.to_le_bytes() == MAGIC,
            Err(error) if error.is::<io::Error>() => return Err(error),
            // The file is shorter than the magic.
            Err(_) => false,
        };
        ensure!(
            is_gguf,
            "not a GGUF file; convert the model with llama.cpp's convert_hf_to_gguf.py"
        );
        let version = bytes.u32()?;
        ensure!(
            !VERSIONS.contains(&version.swap_bytes()),
            "the file is for big-endian machines; download the little-endian one"
        );
        ensure!(
            VERSIONS.contains(&version),
            "GGUF version {version} is not supported, only 2 and 3; convert the model again"
        );
        let tensor_count = bytes.count("tensors", MAX_TENSORS)?;
        let value_count = bytes.count("values", MAX_VALUES)?;
        let mut values = HashMap::new();
        for _ in 0..value_count {
            let key = bytes.name()?;
            let type_id = bytes.u32()?;
            let value = bytes.value(&key, type_id, 0)?;
            values.insert(key, value);
        }
        let mut tensors = Vec::new();
        for _ in 0..tensor_count {
            tensors.push(bytes.tensor()?);
        }
        let alignment = match values.get(ALIGNMENT.0) {
            Some(GgufValue::Number(bytes @ 1..=MAX_SIZE)) => *bytes,
            _ => ALIGNMENT.1,
        };
        let data = bytes.at.next_multiple_of(alignment);
        for tensor in &tensors {
            let begin = data.saturating_add(tensor.offset);
            let needs = begin.saturating_add(tensor.bytes().unwrap_or(0));
            ensure!(
                needs <= file_bytes,
                "the file has {file_bytes} bytes, but tensor `{}` ends at {needs}; the download is \
                 incomplete, so repeat it",
                tensor.name
            );
        }
        Ok(Self {
            values,
            tensors,
            parts: 1,
        })
    }
}

struct HeadReader<R> {
    from: R,
    /// Bytes read so far.
    at: u64,
}

impl<R: Read> HeadReader<R> {
    /// Copies the next `bytes` bytes.
    fn copy(&mut self, bytes: u64, to: &mut impl Write) -> anyhow::Result<()> {
        self.at = self.at.saturating_add(bytes);
        check_count("bytes of its head", self.at, MAX_HEAD)?;
        let copied = io::copy(&mut self.from.by_ref().take(bytes), to);
        ensure!(copied.context(UNREADABLE)? == bytes, HEAD_CUT);
        Ok(())
    }

    /// An unsigned number of `bytes` bytes, at most eight.
    fn number(&mut self, bytes: u64) -> anyhow::Result<u64> {
        let mut number = [0; 8];
        self.copy(bytes, &mut &mut number[..])?;
        Ok(u64::from_le_bytes(number))
    }

    fn u32(&mut self) -> anyhow::Result<u32> {
        Ok(self.number(4)? as u32)
    }

    fn u64(&mut self) -> anyhow::Result<u64> {
        self.number(8)
    }

    fn count(&mut self, what: &'static str, most: u64) -> anyhow::Result<u64> {
        let count = self.u64()?;
        check_count(what, count, most)?;
        Ok(count)
    }

    fn skip(&mut self, bytes: u64) -> anyhow::Result<()> {
        self.copy(bytes, &mut io::sink())
    }

    /// A text of `bytes` bytes; `None` if it is not printable UTF-8.
    fn text(&mut self, bytes: u64) -> anyhow::Result<Option<String>> {
        let mut text = Vec::new();
        self.copy(bytes, &mut text)?;
        let text = String::from_utf8(text).ok();
        Ok(text.filter(|text| !text.contains(char::is_control)))
    }

    fn name(&mut self) -> anyhow::Result<String> {
        let bytes = self.count("bytes of a name", MAX_NAME)?;
        self.text(bytes)?.context(
            "a name in the file is not UTF-8 or has control characters; the file is damaged",
        )
    }

    /// A value of type `type_id`, nested in `depth` arrays.
    fn value(&mut self, key: &str, type_id: u32, depth: usize) -> anyhow::Result<GgufValue> {
        match type_id {
            8 => match self.u64()? {
                bytes @ 0..=MAX_TEXT => {
                    let text = self.text(bytes)?;
                    return Ok(text.map_or(GgufValue::Other, GgufValue::Text));
                }
                bytes => self.skip(bytes)?,
            },
            9 if depth < MAX_DEPTH => {
                let element = self.u32()?;
                let count = self.count("elements of an array", MAX_HEAD)?;
                match fixed_bytes(element) {
                    Some(bytes) => self.skip(count.saturating_mul(bytes))?,
                    None => {
                        for _ in 0..count {
                            self.value(key, element, depth + 1)?;
                        }
                    }
                }
            }
            _ => {
                let bytes = fixed_bytes(type_id).with_context(|| {
                    format!(
                        "value `{key}` has type {type_id}, which GGUF does not have; the file is \
                         damaged"
                    )
                })?;
                let number = self.number(bytes)?;
                let is_negative = number >> (8 * bytes - 1) == 1;
                match type_id {
                    0 | 2 | 4 | 10 => return Ok(GgufValue::Number(number)),
                    1 | 3 | 5 | 11 if !is_negative => return Ok(GgufValue::Number(number)),
                    // A negative number, a float or a truth value.
                    _ => {}
                }
            }
        }
        Ok(GgufValue::Other)
    }

    fn tensor(&mut self) -> anyhow::Result<GgufTensor> {
        let name = self.name()?;
        let mut dimensions = [1; 4];
        let given = self.u32()? as usize;
        let impossible = format!("tensor `{name}` has an impossible size; the file is damaged");
        for size in dimensions
            .get_mut(..given)
            .with_context(|| impossible.clone())?
        {
            let elements = self.u64()?;
            ensure!((1..=MAX_SIZE).contains(&elements), impossible);
            *size = usize::try_from(elements)?;
        }
        let [k, n, b2, b3] = dimensions.map(|size| size as u64);
        let tensor = GgufTensor {
            type_id: self.u32()?,
            offset: self.u64()?,
            dimensions,
            name,
        };
        let whole = (tensor.format()).is_none_or(|(_, it)| it.row_bytes(dimensions[0]).is_some());
        let possible = k * n <= MAX_MATRIX && b2 * b3 <= MAX_MATRICES && whole;
        ensure!(possible, impossible);
        Ok(tensor)
    }
}

/// Bytes of a value, if its type has a fixed size.
const fn fixed_bytes(type_id: u32) -> Option<u64> {
    match type_id {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}
