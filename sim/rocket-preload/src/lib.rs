// SPDX-License-Identifier: MIT OR Apache-2.0
//! `librocket_preload.so`: a library for `LD_PRELOAD` that shows a program
//! `/dev/accel/accel0`, served by another process; see docs/preload.md.
//!
//! The library is a thin client. Its functions replace functions of the C library. Each
//! checks whether the call concerns the device, and otherwise calls the next library. The
//! descriptor that a program gets is a connection to the server ([`npu_wire`]). So the
//! kernel handles dup, fork, exec, close and the death of processes, and this library keeps
//! no state about them.
//!
//! | file | what it is |
//! |---|---|
//! | `open`, `close`, `ioctl`, `mmap` | replacements |
//! | `stat`, `paths`, `poll`, `syscall` | more replacements |
//! | `next` | the macro that declares replacements, and the replaced functions |
//! | `call`, `wire` | one call to the server; its messages, by address |
//! | `named` | memory and descriptors that a call names |
//! | `device` | connecting; the shadow directory: the server's files for paths of /dev, /sys and the device tree |
//! | `target` | reading a path; its target |
//!
//! This code runs inside other programs, so these rules hold. No panic leaves it (`guard`).
//! `errno` is as the C library would leave it. It holds no lock, and allocates nothing for
//! calls that do not concern the device. It makes its own system calls with `rustix`,
//! without the C library.
#![allow(unreachable_pub, reason = "what C calls is public and nobody's")]

mod call;
mod close;
mod complain;
mod device;
mod guard;
mod ioctl;
mod mmap;
mod named;
mod next;
mod open;
mod paths;
mod poll;
mod stat;
mod syscall;
mod target;
mod wire;
