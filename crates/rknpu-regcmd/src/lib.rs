// SPDX-License-Identifier: MIT OR Apache-2.0
//! Register command programs of the RK3588 NPU.
