// SPDX-License-Identifier: MIT OR Apache-2.0
//! `librocket_preload.so`: under `LD_PRELOAD` a program sees
//! `/dev/accel/accel0`, served by another process; see docs/preload.md.
//!
//! A thin client. It replaces functions of the C library by ones that look
//! whether the device is meant and otherwise do what the next library does.
//! The descriptor that a program gets is a connection to the server
//! ([`npu_wire`]), so the kernel does dup, fork, exec, close and death, and
//! nothing is kept here about it.
//!
//! | file | what it is |
//! |---|---|
//! | `open`, `close`, `ioctl`, `mmap`, `mremap`, `stat`, `paths`, `poll`, `syscall` | the functions replaced |
//! | `next` | the macro that declares them, and the functions behind them |
//! | `call`, `wire` | one call to the server; its messages, by address |
//! | `named` | what a call names, and the server may ask for |
//! | `device` | connecting; the server's shadow directory |
//! | `start` | starting a server where there is none |
//! | `target`, `memory` | what a path means; reading it |
//!
//! Rules here, since this code runs inside anybody's program: no panic gets
//! out (`guard`), `errno` is as the C library would leave it, no lock is
//! held, nothing is allocated for a call that is not the device's, system
//! calls of its own are made by `rustix` without the C library.
#![allow(unreachable_pub, reason = "what C calls is public and nobody's")]

mod call;
mod close;
mod complain;
mod device;
mod guard;
mod ioctl;
mod memory;
mod mmap;
mod mremap;
mod named;
mod next;
mod open;
mod paths;
mod poll;
mod start;
mod stat;
mod syscall;
mod target;
mod wire;
