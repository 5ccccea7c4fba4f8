// SPDX-License-Identifier: MIT OR Apache-2.0
//! Safe access to the Linux `rocket` accel driver.
