// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which matmuls of a language model run on the RK3588 NPU and in which precision, and
//! predicts the gain: plain data in, plain data out.
//!
//! | question | answer |
//! |---|---|
//! | In which precision, and from how many rows, is a matrix computed? | [`OffloadRules::decide`] |
//! | From how many rows is attention offloaded? | [`OffloadRules::fewest_attention_rows`] |
//! | How large are packed weights? How long does a matmul take? | [`PlanTarget::packed_bytes`], [`PlanTarget::matmul`] |
//! | How much memory may weights take, and which come first? | [`AvailableMemory`], [`WeightRole`] |
//! | How long does a whole prompt take, attention included? | [`Graph::prompt`] |
//! | How long does a token of each of several sequences take? | [`Graph::step`] |
//!
//! Times of the NPU come from the timing model, those of the CPU alone from published figures
//! ([`CpuSpeed::RK3588`]).
//!
//! ```
//! use npu_offload::{ComputeType, NumberFormat, OffloadRules, PlanTarget};
//!
//! let rules = OffloadRules::new(PlanTarget::at_clock(600_000_000));
//! let (name, q8_0) = NumberFormat::of_ggml(8).unwrap();
//! assert_eq!(name, "Q8_0");
//! // A weight matrix of a feed-forward network of Llama-3.2-1B.
//! let decision = rules.decide(q8_0, [8192, 2048]);
//! assert_eq!(decision.precision, ComputeType::Int8Hadamard);
//! assert!(decision.fewest_rows.is_some_and(|rows| rows <= 64));
//! let bytes = rules.target.packed_bytes(decision.precision, [8192, 2048]);
//! assert_eq!(bytes, Some(16 << 20));
//! ```

mod decide;
mod predict;

pub use decide::attention::AttentionChoice;
pub use decide::cost::PlanTarget;
pub use decide::cpu::CpuSpeed;
pub use decide::format::{FORMATS, FormatClass, NumberFormat};
pub use decide::memory::{AvailableMemory, parse_bytes};
pub use decide::placement::{WeightRole, add_tensor};
pub use decide::precision::{ComputeType, PrecisionChoice};
pub use decide::rows::{FEWEST_ROWS, MOST_ROWS};
pub use decide::rules::{BreakEven, DEFAULT_MIN_ROWS, OffloadRules, OffloadSettings};
pub use predict::graph::{Graph, GraphTime};
pub use predict::models::{ARCHITECTURES, LayerPart, ModelShape, WeightMatrix};
