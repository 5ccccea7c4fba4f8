// SPDX-License-Identifier: MIT OR Apache-2.0
//! Register command programs of the RK3588 NPU.
//!
//! The NPU has no instructions: a *task* is a set of register values, given as an
//! array of 64-bit command words. This crate declares every register once ([`regs`])
//! and builds on that table: typed registers, programs with symbolic addresses,
//! decoding and disassembly, the memory that a task touches, and a lint that checks
//! for the traps of the hardware.
//!
//! ```text
//! MatmulTask --check, program--> Program --link--> LinkedProgram --words--> NPU
//! words --decode--> items
//! words --tasks--> register values --task--> convolution, flying task or pooling
//! register values --extents--> ranges;  register values --timing--> work
//! words --disassemble--> text --assemble--> words;  words --lint--> findings
//! ```
//!
//! # Example
//!
//! ```
//! use rknpu_regcmd::{Binding, BufferId, ChipProfile, Iova, MatmulTask, TaskType};
//!
//! let (a, b, c) = (BufferId(0), BufferId(1), BufferId(2));
//! let task = MatmulTask {
//!     ty: TaskType::Int8ToInt32,
//!     m: 64,
//!     k: 64,
//!     n: 64,
//!     a: a.at(0),
//!     b: b.at(0),
//!     c: c.at(0),
//! };
//! let program = task.program(&ChipProfile::RK3588)?;
//! let linked = program.link(&[
//!     Binding { id: a, iova: Iova(0x0000), len: 4096 },
//!     Binding { id: b, iova: Iova(0x1000), len: 4096 },
//!     Binding { id: c, iova: Iova(0x2000), len: 4 * 4096 },
//! ])?;
//! assert_eq!(linked.words().len(), 126);
//! assert_eq!(linked.last_written_atom(), Some(Iova(0x2000 + 4 * 4096 - 16)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod asm;
mod chip;
mod decode;
mod disasm;
mod extent;
mod field;
mod link;
pub mod lint;
mod matmul;
pub mod pages;
mod precision;
mod program;
mod regfile;
pub mod regs;
pub mod rules;
pub mod task;
pub mod timing;
mod word;

pub use asm::{AsmError, assemble};
pub use chip::{ATOM_BYTES, CBUF_ENTRY_BYTES, ChipProfile};
pub use decode::{Item, decode};
pub use disasm::{disassemble, statements};
pub use extent::{
    Direction, DmaEngine, Extent, ExtentError, WrittenElement, extents, written_element,
};
pub use field::{
    AddressRegister, FieldInfo, FieldRangeError, Register, RegisterAccess, RegisterInfo,
};
pub use link::{Binding, LinkError, LinkedProgram};
pub use lint::{Before, Finding, LintContext, Severity, lint};
pub use matmul::{
    CbufSplit, MatmulError, MatmulForm, MatmulTask, ProgramOptions, Reuse, ReuseRule, TaskType,
};
pub use precision::Precision;
pub use program::{BufferId, BufferRef, Program, RegisterSet};
pub use regfile::RegisterFile;
pub use regs::{all, lookup};
pub use task::{TaskRegisters, tasks, tasks_after};
pub use word::{Block, EnableMask, Iova, Word};
