// SPDX-License-Identifier: MIT OR Apache-2.0
//! A matrix product as one task: C\[M,N\] = A\[M,K\] x B\[N,K\]^T.
//!
//! To the NPU it is a 1x1 convolution over a cube of width 1, height M and K
//! channels, with N kernels. The operands are packed:
//!
//! ```text
//! A   cube: element (m, k) in surface k / C2, atom m        C2 = elements of an atom
//! B   (N/G, K/32, G, 32) elements                           G  = kernel group
//! C   cube: element (m, n) in surface n / C2', atom m       C2' = output elements of an atom
//! ```
//!
//! The register values are those of two generators, for forms A and B
//! (E-form-a-vendor, E-form-b-mainline). Their words agree with these programs except
//! in the number of feature banks; see [`MatmulError::DataBanks`].

mod emit;
mod error;
mod options;
mod task;
mod types;

pub use error::MatmulError;
pub use options::{MatmulForm, ProgramOptions, Reuse, ReuseRule};
pub use task::{CbufSplit, MatmulTask};
pub use types::TaskType;
