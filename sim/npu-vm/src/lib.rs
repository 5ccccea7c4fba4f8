// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NPU of a virtual machine: what lies between the memory of a guest that
//! runs the real `rocket` driver and a chip in software.
//!
//! QEMU knows no NPU. The guest's driver finds the register windows of an
//! RK3588 at their real addresses all the same, because QEMU is given so much
//! RAM that these addresses lie in it, and the guest's kernel is told to leave
//! that part alone. So a register read by the driver is a plain read of
//! memory, and costs nothing to emulate. A register *write* must have its
//! effect before the guest's next instruction: a plugin of QEMU calls
//! [`GuestNpu::stored`] for it.
//!
//! * [`board`]: where everything is. The device tree ([`device_tree`]) and the
//!   device side both read it there.
//! * [`GuestNpu`]: the NPU cores with their IOMMUs, resets and interrupts.
//!   A core is an [`rknpu_chip::NpuCore`]: the chip's, any other model, or a
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

/// The recipe of docs/vm.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/vm.md")]
struct Recipe;
