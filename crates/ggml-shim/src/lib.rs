// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ggml backend for the RK3588 NPU.
