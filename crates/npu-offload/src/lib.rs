// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which products of a language model go to the RK3588 NPU, in what numbers, and what that
//! brings: plain data in, plain data out.
//!
//! | question | answer |
//! |---|---|
//! | what is a weight matrix computed in, and from how many rows on? | [`OffloadRules::decide`] |
//! | from how many rows on is attention computed there? | [`OffloadRules::fewest_attention_rows`] |
//! | what does it take once packed, and a product with it? | [`PlanTarget::packed_bytes`], [`PlanTarget::cost`] |
//! | what may all weights take, and which come first? | [`AvailableMemory`], [`WeightRole`] |
//! | what does a whole prompt take, attention and all else on the CPU included? | [`Graph::prompt`] |
//! | what do several sequences take together? | [`Graph::step`] |
//!
//! All times are the timing model's, and of the CPU published ones ([`CpuSpeed::RK3588`]).
//!
//! ```
//! use npu_offload::{ComputeType, NumberFormat, OffloadRules, PlanTarget};
//!
//! let rules = OffloadRules::new(PlanTarget::at_clock(600_000_000));
//! let (name, q8_0) = NumberFormat::of_ggml(8).unwrap();
//! assert_eq!(name, "Q8_0");
//! // A feed-forward network of Llama-3.2-1B.
//! let decision = rules.decide(q8_0, [8192, 2048]);
//! assert_eq!(decision.precision, ComputeType::Int8Hadamard);
//! assert!(decision.fewest_rows.is_some_and(|rows| rows <= 64));
//! let bytes = rules.target.packed_bytes(decision.precision, [8192, 2048]);
//! assert_eq!(bytes, Some(16 << 20));
//! ```

mod attention;
mod cost;
mod cpu;
mod format;
mod graph;
mod memory;
mod models;
mod placement;
mod precision;
mod rows;
mod rules;

pub use attention::{AttentionChoice, AttentionSize};
pub use cost::{OffloadCost, PlanTarget};
pub use cpu::{CpuSpeed, ProductSpeed};
pub use format::{FORMATS, FormatClass, NumberFormat};
pub use graph::{Graph, GraphTime};
pub use memory::{AvailableMemory, parse_bytes};
pub use models::{ARCHITECTURES, ModelShape, WeightMatrix};
pub use placement::{WeightRole, add_tensor};
pub use precision::{ComputeType, PrecisionChoice};
pub use rows::{FEWEST_ROWS, MOST_ROWS};
pub use rules::{OffloadRules, ProductDecision};
