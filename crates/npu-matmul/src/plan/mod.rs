// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which tiles, in which order, on which device: data, and nothing but.
//!
//! A [`WeightPlan`] cuts B when it is loaded; a [`Plan`] adds M and cuts the
//! product into [`Step`]s. A step is at most one job for each device, of a
//! range of rows, a range of K tiles and a range of output channels. Its jobs run
//! at the same time; the steps follow one another. Devices share N.
//!
//! ```text
//!             N: device 0  |  device 1  |  device 2        (blocks of weights)
//!           +-----+-----+--+-----+-----+--+-----+-----+
//!   rows    | job | job |  | job | job |  | job | job |    step 0, step 1
//!           +-----+-----+--+-----+-----+--+-----+-----+
//!   M       | job | job |  | job | job |  | job | job |    step 2, step 3
//!           +-----+-----+--+-----+-----+--+-----+-----+
//!
//!   in a job: row tiles x K tiles x N tiles, a task each; one task writes one
//!   partial result, and the CPU adds those of different K tiles up.
//! ```
//!
//! A product that fits into one job per device is cut all the same where that lets the
//! CPU pack and unpack while the NPU computes (`rule`). Nothing here touches a device,
//! and the same arguments give the same plan.

mod cost;
mod depth;
mod envelope;
mod few_rows;
mod options;
mod product;
mod rule;
mod step;
mod steps;
mod tasks;
#[cfg(test)]
mod tests;
mod tiles;
mod waves;
mod weights;

pub(crate) use cost::task_time_bound_ns;
pub use depth::{int4_depth, int4_depth_within};
pub use options::{Conditions, JobLimits, PlanError, PlanOptions};
pub use product::Plan;
pub use step::{ActivationTile, Band, JobPlan, KTile, Step, TaskPlan};
pub(crate) use tasks::TaskList;
pub use tiles::INT4_K_TILE_MAX;
pub(crate) use tiles::even_tile;
pub(crate) use waves::{
    BUFFERS_OF_A_JOB, Packed, WAVE_JOBS, WAVES_IN_FLIGHT, WaveBuilder, WaveSize, waves,
};
pub(crate) use weights::DEVICE_BYTES_MAX;
pub use weights::{WeightBlock, WeightPlan};
