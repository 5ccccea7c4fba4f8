// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first contact with a board, and the archive of what it showed.

pub(crate) mod evidence;
pub(crate) mod first;
