// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe asm`: assembles a register program.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use crate::base::exit::{Failure, Verdict};
use crate::base::output;
use crate::matmul::program;

#[derive(Debug, Args)]
pub(crate) struct AsmFlags {
    /// File with assembler text, as `decode` prints it; `-` is standard input
    ///
    /// Also accepts hexadecimal or binary words, like `decode`.
    file: PathBuf,

    /// Write the words here [default: standard output]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    /// Write binary, little-endian, instead of text with one hexadecimal word per line
    #[arg(long)]
    bin: bool,
}

pub(crate) fn run(asm: &AsmFlags) -> Result<Verdict, Failure> {
    let words = program::read_source(&asm.file)?;
    let bytes = if asm.bin {
        program::to_binary(&words)
    } else {
        program::to_hex(&words).into_bytes()
    };
    match &asm.output {
        Some(path) => fs::write(path, bytes).map_err(Failure::writing(path))?,
        None => output::print_bytes(&bytes)?,
    }
    Ok(Verdict::Pass)
}
