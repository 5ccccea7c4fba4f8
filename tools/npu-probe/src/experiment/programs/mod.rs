// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of the experiments beyond plain matmuls. All are small changes of programs that
//! are known to run on silicon.

pub(crate) mod depthwise;
pub(crate) mod flying;
pub(crate) mod lookup;
pub(crate) mod matmuls;
pub(crate) mod observed;
pub(crate) mod pooling;
