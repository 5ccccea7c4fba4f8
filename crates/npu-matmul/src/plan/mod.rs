// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans of matmuls: tiles, their order and their devices, as data.
//!
//! A [`WeightPlan`] divides B when B is loaded. A [`Plan`] adds M and divides the matmul into
//! [`Step`]s. A step has at most one job for each device. A job covers a range of rows, of K tiles
//! and of output channels. The jobs of a step run at the same time; the steps run in order. Devices
//! share N.
//!
//! ```text
//!             N: device 0  |  device 1  |  device 2        (blocks of weights)
//!           +-----+-----+--+-----+-----+--+-----+-----+
//!   rows    | job | job |  | job | job |  | job | job |    step 0, step 1
//!           +-----+-----+--+-----+-----+--+-----+-----+
//!   M       | job | job |  | job | job |  | job | job |    step 2, step 3
//!           +-----+-----+--+-----+-----+--+-----+-----+
//!
//!   A job has one row tile, and a task for each of its K tiles x N tiles. A task
//!   writes one partial result; the CPU adds those of different K tiles.
//! ```
//!
//! A matmul that fits one job per device is still divided if the CPU can then pack and unpack while
//! the NPU computes (`rule`). Planning uses no device. The same arguments give the same plan.

pub(crate) mod attention;
mod cost;
mod depth;
pub mod emit;
pub(crate) mod error;
pub(crate) mod first_run;
pub(crate) mod kept_plan;
mod list;
mod matmul;
pub(crate) mod observe;
mod options;
mod rule;
mod shared_times;
mod steps;
#[cfg(test)]
mod tests;
pub(crate) mod threads;
mod tile_limits;
mod tiles;
pub(crate) mod weight_format;
mod weights;

pub use depth::int4_depth;
pub(crate) use list::{
    BUFFERS_OF_A_JOB, BandCopy, BandSlice, WAVE_JOBS, WAVES_IN_FLIGHT, WavePlan, WaveSize,
    WaveStep, slice_of, waves,
};
pub use matmul::Plan;
pub use options::{JobLimits, PlanError, PlanOptions};
pub(crate) use shared_times::SharedTimes;
pub use steps::{Band, JobPlan, Step, TaskPlan};
pub use tiles::INT4_K_TILE_MAX;
pub(crate) use tiles::{even_tile, pieces};
pub(crate) use weights::DEVICE_BYTES_MAX;
pub use weights::{KTile, WeightBlock, WeightPlan};
