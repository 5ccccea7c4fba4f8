// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory with all that is needed to look into a result elsewhere.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context;
use rknpu_regcmd::disassemble;
use serde::Serialize;

use crate::capture::{CapturedProduct, CapturedTask};
use crate::data::ProductOperands;
use crate::expected::CpuResult;
use crate::product::ProductResult;
use crate::report::{DeviceReport, ProblemReport};
use crate::shape::ProductShape;

/// A file of the dump, and what it holds in words.
#[derive(Debug, Serialize)]
struct File {
    name: String,
    holds: String,
}

/// `manifest.json`: what was done, and what the other files are.
#[derive(Debug, Serialize)]
struct Manifest<'a> {
    about: &'static str,
    tool: &'static str,
    device: &'a DeviceReport,
    problem: &'a ProblemReport,
    /// What went wrong on the way, if anything did.
    error: Option<&'a str>,
    /// What the model noticed, if it was one.
    model_events: &'a [String],
    files: Vec<File>,
}

const ABOUT: &str = "One matrix product, C = A x B^T, as npu-probe submitted it. Matrices are row \
                     major and little endian, without padding. The tasks are the register programs \
                     with the addresses they ran at; `npu-probe decode` reads them.";

/// The contents of a dump directory.
pub(crate) struct Dump<'a> {
    pub(crate) device: &'a DeviceReport,
    pub(crate) problem: &'a ProblemReport,
    pub(crate) captured: &'a CapturedProduct,
    pub(crate) operands: &'a ProductOperands,
    pub(crate) expected: &'a CpuResult,
    /// None if the product was not computed.
    pub(crate) product: Option<&'a ProductResult>,
    pub(crate) error: Option<&'a str>,
    pub(crate) model_events: &'a [String],
}

impl Dump<'_> {
    /// Writes all files; the manifest last, so that one without it is known to
    /// be incomplete.
    pub(crate) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the directory {}", directory.display()))?;
        clear(directory).with_context(|| format!("cannot clear {}", directory.display()))?;
        let mut writer = Writer {
            directory,
            files: Vec::new(),
        };
        self.write_matrices(&mut writer)?;
        for (index, task) in self.captured.tasks.iter().enumerate() {
            write_task(&mut writer, index, task)?;
        }
        let manifest = Manifest {
            about: ABOUT,
            tool: concat!("npu-probe ", env!("CARGO_PKG_VERSION")),
            device: self.device,
            problem: self.problem,
            error: self.error,
            model_events: self.model_events,
            files: std::mem::take(&mut writer.files),
        };
        let manifest = serde_json::to_string_pretty(&manifest)? + "\n";
        writer.put("manifest.json", String::new(), manifest.as_bytes())
    }

    fn write_matrices(&self, writer: &mut Writer<'_>) -> anyhow::Result<()> {
        let ProductShape { m, k, n } = self.problem.shape;
        let (a_size, b_size, c_size) = (
            format!("{m} x {k}"),
            format!("{n} x {k}"),
            format!("{m} x {n}"),
        );
        let (ty, a, b) = match self.operands {
            ProductOperands::Integers { a, b } => (
                "int8",
                bytes(a, |x| x.to_le_bytes()),
                bytes(b, |x| x.to_le_bytes()),
            ),
            ProductOperands::Floats { a, b } => (
                "fp16",
                bytes(a, |x| x.to_le_bytes()),
                bytes(b, |x| x.to_le_bytes()),
            ),
            ProductOperands::Quantised { a, b } => (
                "fp32",
                bytes(a, |x| x.to_le_bytes()),
                bytes(b, |x| x.to_le_bytes()),
            ),
        };
        writer.put("a.bin", format!("A, {a_size}, {ty}"), &a)?;
        writer.put("b.bin", format!("B, {b_size}, {ty}"), &b)?;
        match self.product {
            Some(ProductResult::Integers(c)) => {
                writer.put(
                    "c.bin",
                    format!("C of the NPU, {c_size}, int32"),
                    &bytes(c, |x| x.to_le_bytes()),
                )?;
            }
            Some(ProductResult::Floats(c)) => {
                writer.put(
                    "c.bin",
                    format!("C of the NPU, {c_size}, fp32"),
                    &bytes(c, |x| x.to_le_bytes()),
                )?;
            }
            Some(ProductResult::Halves(c)) => {
                writer.put(
                    "c.bin",
                    format!("C of the NPU, {c_size}, fp16"),
                    &bytes(c, |x| x.to_le_bytes()),
                )?;
            }
            None => {}
        }
        match self.expected {
            CpuResult::Integers(c) => writer.put(
                "expected.bin",
                format!("C of the CPU, {c_size}, int32"),
                &bytes(c, |x| x.to_le_bytes()),
            ),
            CpuResult::Floats(c) => {
                let values = bytes(c, |x| x.value.to_le_bytes());
                writer.put(
                    "expected.bin",
                    format!("C of the CPU, {c_size}, fp64"),
                    &values,
                )?;
                let tolerances = bytes(c, |x| x.tolerance.to_le_bytes());
                let holds = format!("how far C may be from it, {c_size}, fp64");
                writer.put("tolerance.bin", holds, &tolerances)
            }
        }
    }
}

/// Removes the files of an earlier dump, and nothing else.
fn clear(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(is_ours) && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Whether a dump has files of this name.
fn is_ours(name: &str) -> bool {
    let task = || {
        let rest = name.strip_prefix("task-")?;
        rest.strip_suffix(".words")
            .or_else(|| rest.strip_suffix(".txt"))
    };
    let is_number = |number: &str| number.bytes().all(|digit| digit.is_ascii_digit());
    [
        "manifest.json",
        "a.bin",
        "b.bin",
        "c.bin",
        "expected.bin",
        "tolerance.bin",
    ]
    .contains(&name)
        || task().is_some_and(is_number)
}

/// One task: its words as text that `decode` reads, and their meaning.
fn write_task(writer: &mut Writer<'_>, index: usize, task: &CapturedTask) -> anyhow::Result<()> {
    let [m, k, n] = task.tile;
    let [row, channel, column] = task.origin;
    let title = format!(
        "task {index} on file descriptor {}: M={m} K={k} N={n} (padded) from row {row}, \
         channel {channel}, column {column}",
        task.fd
    );
    let mut words = format!("# {title}\n");
    for word in &task.words {
        let _ = writeln!(words, "{:016x}", word.bits());
    }
    writer.put(
        &format!("task-{index:04}.words"),
        title.clone(),
        words.as_bytes(),
    )?;
    let text = disassemble(&task.words);
    writer.put(
        &format!("task-{index:04}.txt"),
        format!("{title}, disassembled"),
        text.as_bytes(),
    )
}

/// Elements as little-endian bytes.
fn bytes<T: Copy, const N: usize>(elements: &[T], to_bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    elements.iter().flat_map(|&x| to_bytes(x)).collect()
}

/// Writes files and remembers what they are.
struct Writer<'a> {
    directory: &'a Path,
    files: Vec<File>,
}

impl Writer<'_> {
    fn put(&mut self, name: &str, holds: String, content: &[u8]) -> anyhow::Result<()> {
        let path = self.directory.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        self.files.push(File {
            name: name.to_owned(),
            holds,
        });
        Ok(())
    }
}
