// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a caller may fix in a plan, and why a plan cannot be made.

use std::sync::Arc;
use std::time::Duration;

use rknpu_regcmd::{MatmulError, ReuseRule};
use rocket_uapi::DeviceInfo;

use crate::dtype::{Dtype, Results};
use crate::profile::{Profile, ProfileError};

/// Bounds of one job. A product that exceeds them is cut into several jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobLimits {
    /// Device time in the worst conditions: 200 MHz, 1 GB/s, nothing overlapped. The
    /// default is a fifth of the 500 ms after which the kernel kills a job.
    pub time: Duration,
    /// Bytes of the activation buffer, likewise of the output buffer.
    /// PREP_BO and FINI_BO maintain the caches of a whole buffer, and buffers far
    /// larger than their live part cost more than the product (E-time-client), so buffers stay moderate and fit exactly.
    pub buffer_bytes: usize,
    /// Tasks: bounds the size of the programs, up to 1 KiB each.
    pub tasks: usize,
}

impl Default for JobLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_millis(100),
            buffer_bytes: 64 << 20,
            tasks: 1024,
        }
    }
}

/// Products that plans are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Rows that weights will mostly be multiplied with: a prompt's batch.
    pub rows: usize,
    /// What those products will mostly be made into.
    pub results: Results,
}

impl Default for Conditions {
    /// llama.cpp's default batch of 512 rows.
    fn default() -> Self {
        Self {
            rows: 512,
            results: Results::Sums,
        }
    }
}

/// What the caller fixes; the plan chooses what is `None`. Results of integer
/// products do not depend on any of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Rows of a tile, a multiple of 4.
    pub row_tile: Option<usize>,
    /// Channels of a tile, a multiple of 32. Fixed when weights are loaded.
    pub k_tile: Option<usize>,
    /// Depth of INT4 tiles that cannot saturate with the weights at hand, as
    /// [`int4_depth`](super::int4_depth) tells; `None` for any weights.
    pub int4_depth: Option<usize>,
    /// Output channels of a tile, whole kernel groups.
    pub n_tile: Option<usize>,
    /// Most parts that a product is cut into, so that the CPU packs and unpacks while
    /// the NPU computes, but never fewer than row tiles; `None` for as many as the rule of
    /// `rule` says.
    pub parts: Option<usize>,
    /// Bounds of one job.
    pub limits: JobLimits,
    /// What choices are made for.
    pub conditions: Conditions,
    /// The board: how fast its NPU and its CPU are, and which tiles have run. [`PlanOptions::for_device`] finds it; by default
    /// that of a board of which nothing was measured.
    pub profile: Arc<Profile>,
    /// Whether tiles may be larger than those of the profile's
    /// [`envelope`](Profile::envelope). An engine decides `None`: on the software
    /// model they may, on an NPU not. Without an engine they may.
    pub unmeasured_tiles: Option<bool>,
    /// Whether an engine checks the first task of each [kind](crate::TaskKind) on the
    /// CPU. It decides `None`: on an NPU that is not
    /// [calibrated](Profile::is_calibrated) it does, and on a model of which
    /// `npu-probe first` has written a profile.
    pub check_first: Option<bool>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            row_tile: None,
            k_tile: None,
            int4_depth: None,
            n_tile: None,
            parts: None,
            limits: JobLimits::default(),
            conditions: Conditions::default(),
            profile: Profile::built_in(),
            unmeasured_tiles: None,
            check_first: None,
        }
    }
}

impl PlanOptions {
    /// Nothing fixed, for a board of which only the clock is known.
    #[must_use]
    pub fn uncalibrated(clock_hz: u64) -> Self {
        Self {
            profile: Arc::new(Profile::built_in().at_clock(clock_hz)),
            unmeasured_tiles: Some(false),
            ..Self::default()
        }
    }

    /// The same for a board on which all tiles and all that tasks may find in CBUF were
    /// calibrated, and are right.
    #[must_use]
    pub fn calibrated(clock_hz: u64) -> Self {
        let mut profile = Profile::built_in().at_clock(clock_hz);
        profile.choices = profile.choices.with_reuse(ReuseRule::Always);
        Self {
            profile: Arc::new(profile),
            unmeasured_tiles: Some(true),
            ..Self::default()
        }
    }

    /// Nothing fixed, for a device by its [`Profile`]; and why that which is there
    /// is not used, if it is not.
    #[must_use]
    pub fn for_device(info: &DeviceInfo) -> (Self, Option<ProfileError>) {
        let (profile, refused) = match Profile::find(info) {
            Ok(profile) => (profile, None),
            Err(error) => (Profile::built_in(), Some(error)),
        };
        let options = Self {
            unmeasured_tiles: Some(profile.allows_unmeasured_tiles(info)),
            profile,
            ..Self::default()
        };
        (options, refused)
    }
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A dimension of the product is zero.
    #[error("{dimension} is 0: a matmul needs M, N and K of at least 1")]
    EmptyDimension {
        /// "M", "N" or "K".
        dimension: &'static str,
    },
    /// The device pool is empty.
    #[error("there is no device to put the weights on")]
    NoDevice,
    /// The hardware cannot compute a tile of this size.
    #[error("a tile of {m} rows, K = {k}, N = {n} is not legal: {source}")]
    IllegalTile {
        /// Rows of the tile.
        m: usize,
        /// Channels of the tile: its depth.
        k: usize,
        /// Output channels.
        n: usize,
        /// The rule that it breaks.
        source: MatmulError,
    },
    /// An INT4 tile so deep that its 16-bit results could saturate.
    #[error(
        "an int4 tile of K = {k} could saturate its 16-bit results; \
         K tiles of at most {max} cannot"
    )]
    Int4Saturation {
        /// The depth asked for.
        k: usize,
        /// The deepest one that cannot saturate.
        max: usize,
    },
    /// A tile that is legal, and larger than any that is known to have run on
    /// silicon.
    #[error(
        "a tile of {m} rows, K = {k}, N = {n} is legal, but none of {dtype} so large is known \
         to have run on this NPU: let `npu-probe calibrate` try it, or allow unmeasured tiles"
    )]
    Unmeasured {
        /// Precision of the operands.
        dtype: Dtype,
        /// Rows of the tile.
        m: usize,
        /// Channels of the tile: its depth.
        k: usize,
        /// Output channels.
        n: usize,
    },
    /// A forced tile size is zero.
    #[error("a forced tile size is 0")]
    EmptyTile,
    /// M is beyond what a plan counts.
    #[error("M = {m} is more than the {max} rows that one call takes")]
    TooManyRows {
        /// Rows asked for.
        m: usize,
        /// Most rows of a call.
        max: usize,
    },
    /// One group of output channels does not fit a buffer.
    #[error(
        "a group of output channels of K = {k} takes {bytes} bytes, more than \
         the {limit} of a weight buffer; multiply parts of K and add them up"
    )]
    GroupTooLarge {
        /// The depth of the weights.
        k: usize,
        /// What a group takes.
        bytes: u128,
        /// The most that a weight buffer holds.
        limit: usize,
    },
    /// The weights do not fit the address space of the devices.
    #[error(
        "these weights take {bytes} bytes on each of {devices} file descriptor(s), \
         which address 4 GiB each; use more descriptors, or parts of N"
    )]
    WeightsTooLarge {
        /// Bytes on one device.
        bytes: u128,
        /// Devices.
        devices: usize,
    },
    /// Not even one tile stays within the job limits.
    #[error("one tile of {m} rows, K = {k}, N = {n} exceeds the limits of a job: {limits:?}")]
    JobLimits {
        /// Rows of the tile.
        m: usize,
        /// Channels of the tile: its depth.
        k: usize,
        /// Output channels.
        n: usize,
        /// The limits of a job that it exceeds.
        limits: JobLimits,
    },
    /// All keys of some rows do not fit a job of attention.
    #[error(
        "attention to {keys} keys of {head_dim} elements, with values of {value_dim}, exceeds the \
         limits of one job; use fewer keys, or the CPU"
    )]
    TooManyKeys {
        /// Keys of a head.
        keys: usize,
        /// Elements of a key.
        head_dim: usize,
        /// Elements of a value.
        value_dim: usize,
    },
}
