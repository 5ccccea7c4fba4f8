// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats and bytes; nothing here knows devices or plans.
//!
//! | file | content |
//! |---|---|
//! | `dtype`, `layout` | precisions, and the position of each element in the NPU's memory |
//! | `operands` | A and C of a matmul in host memory |
//! | `pack`, `quantise` | into the NPU's layouts; to integers and scales |
//! | `reference` | a matmul in a few lines, for tests |
//! | `cache`, `scratch`, `sync` | what is kept from call to call, and locks |

pub(crate) mod cache;
pub mod dtype;
pub mod layout;
pub(crate) mod operands;
pub mod pack;
pub mod quantise;
pub mod reference;
pub(crate) mod scratch;
pub(crate) mod sync;
