// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NPU of a virtual machine: connects a guest that runs the real `rocket`
//! driver with a chip in software.
//!
//! QEMU has no NPU. But it gets so much RAM that an RK3588's real register
//! addresses lie in it, and the guest's kernel is told to leave that part
//! alone. So the guest's driver finds registers there. A register read is a
//! plain read of memory, and costs nothing to emulate. A register *write* must
//! take effect before the guest's next instruction: a plugin of QEMU calls
//! [`GuestNpu::stored`] for it.
//!
//! * [`board`]: addresses and interrupts, for the device tree ([`device_tree`])
//!   and the device side.
//! * [`GuestNpu`]: the NPU cores with their IOMMUs, resets and interrupts. A
//!   core is an [`rknpu_chip::NpuCore`]: the chip's, another model, or a
//!   recording.
#![forbid(unsafe_code)]

pub mod board;
mod bus;
mod clock;
mod core;
mod machine;
mod mmu;
mod monitor;
mod ram;
mod tree;

pub use machine::{GuestNpu, StartError, Wires};
pub use tree::{TreeError, device_tree};

/// Compiles the recipe of docs/vm.md.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/vm.md")]
struct Recipe;
