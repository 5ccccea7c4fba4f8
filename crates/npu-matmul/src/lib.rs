// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrix products on the RK3588 NPU.
