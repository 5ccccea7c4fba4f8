// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe asm`: assembles a register program.

use std::fs;

use crate::exit::{Failure, Verdict};
use crate::flags::AsmFlags;
use crate::output;
use crate::program;

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
