// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `decode`.

use std::path::{Path, PathBuf};

use clap::Args;
use rknpu_regcmd::{Word, disassemble, statements};

use super::number::number;
use super::shared::ReportFlags;
use crate::base::capture_file::CaptureFlags;

#[derive(Debug, Args)]
pub(crate) struct DecodeFlags {
    /// File with a program; `-` is standard input
    ///
    /// Accepts a capture file, assembler text, hexadecimal 64-bit words separated by blanks or
    /// commas, or binary little-endian words. `#` and `;` begin comments in text. The file's
    /// extension selects the format (.asm .s, .hex .words, .bin); without one the content
    /// does.
    #[arg(required_unless_present_any = ["registers", "rules"])]
    file: Option<PathBuf>,

    /// Second capture: print the differences of both
    ///
    /// Compares device, jobs, command words (by register name) and contents. The exit code is 1
    /// if anything differs.
    #[arg(conflicts_with_all = ["job", "lint", "statements"])]
    pub(crate) other: Option<PathBuf>,

    /// Print the programs of this job of a capture
    #[arg(long, value_name = "INDEX", value_parser = number::<usize>)]
    pub(crate) job: Option<usize>,

    /// Print only this program of the job, like a program file
    #[arg(long, value_name = "INDEX", requires = "job", value_parser = number::<usize>)]
    pub(crate) task: Option<usize>,

    #[command(flatten)]
    pub(crate) capture: CaptureFlags,

    /// Print only the findings on all programs
    ///
    /// The exit code is 1 if there are errors. Warnings and notes do not count.
    #[arg(long, conflicts_with_all = ["job", "statements"])]
    pub(crate) lint: bool,

    /// Print assembler statements without addresses and bits, to edit and pass to `asm`
    #[arg(long)]
    pub(crate) statements: bool,

    /// Print the registers and fields whose BLOCK.NAME contains NAME, or all
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", exclusive = true)]
    pub(crate) registers: Option<String>,

    /// Print the rules of programs whose id contains ID, or all
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "", exclusive = true)]
    pub(crate) rules: Option<String>,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

impl DecodeFlags {
    /// The file with a program. clap requires one for all but `--registers` and `--rules`.
    pub(crate) fn file(&self) -> &Path {
        self.file.as_deref().unwrap_or(Path::new(""))
    }

    /// The words as text, in the requested form.
    pub(crate) fn disassemble(&self, words: &[Word]) -> String {
        if self.statements {
            statements(words)
        } else {
            disassemble(words)
        }
    }
}
