// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options and errors of planning.

use std::sync::Arc;
use std::time::Duration;

use rknpu_regcmd::{MatmulError, ReuseRule};
use rocket_uapi::DeviceInfo;

use crate::numbers::dtype::Dtype;
use crate::profile::{Choices, CostSide, Profile, ProfileError};

/// Least bytes that a wave packs on a device before it is submitted. Packing them takes the CPU
/// about 15 us; less is not worth a separate SUBMIT.
pub(super) const PACKED_BYTES_MIN: usize = 96 << 10;

/// Limits of one job. A matmul that exceeds them becomes several jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobLimits {
    /// Device time in the worst conditions: 200 MHz, 1 GB/s, nothing overlapped. The
    /// default is a fifth of the 500 ms after which the kernel kills a job.
    pub time: Duration,
    /// Bytes of the activation buffer, and of the output buffer. PREP_BO and FINI_BO maintain the
    /// caches of a whole buffer. For a buffer much larger than its data this costs more than the
    /// matmul (E-time-client), so buffers stay moderate and fit exactly.
    pub buffer_bytes: usize,
    /// Number of tasks. It limits the size of the programs, up to 1 KiB each.
    pub tasks: usize,
    /// Whether a job may have tasks of several matmuls.
    pub joined: bool,
}

impl JobLimits {
    /// The default limits, within what the profile of a board allows.
    fn within(choices: &Choices) -> Self {
        Self {
            tasks: choices.job_tasks.value,
            joined: choices.joined_jobs.value,
            ..Self::default()
        }
    }
}

impl Default for JobLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_millis(100),
            buffer_bytes: 64 << 20,
            tasks: 1024,
            joined: true,
        }
    }
}

/// What the caller fixes. The plan chooses each value that is `None`. Results of integer matmuls do
/// not depend on these options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Rows of a tile, a multiple of 4.
    pub row_tile: Option<usize>,
    /// Channels of a tile, a multiple of 32. Fixed when weights are loaded.
    pub k_tile: Option<usize>,
    /// Depth at which INT4 tiles of the weights at hand cannot saturate, from
    /// [`int4_depth`](super::int4_depth); `None` for any weights.
    pub int4_depth: Option<usize>,
    /// Output channels of a tile, whole kernel groups.
    pub n_tile: Option<usize>,
    /// Most parts of a matmul, so that the CPU packs and unpacks while the NPU computes. There are
    /// never fewer parts than row tiles. If `None`, `rule` chooses.
    pub parts: Option<usize>,
    /// Limits of one job.
    pub limits: JobLimits,
    /// Rows to optimise for: the batch of a prompt.
    pub batch_rows: usize,
    /// The board's profile: speeds and tiles that have run. [`PlanOptions::for_device`] finds it.
    /// The default is [`Profile::built_in`].
    pub profile: Arc<Profile>,
    /// Whether tiles may be larger than those of the profile's [`envelope`](Profile::envelope). If
    /// `None`, an engine decides by [`Profile::allows_unmeasured_tiles`]; without an engine they
    /// may.
    pub unmeasured_tiles: Option<bool>,
    /// Whether an engine checks the first task of each [kind](crate::TaskKind) on the CPU. If
    /// `None`, it does on an NPU that is not [calibrated](Profile::is_calibrated), and on a model
    /// with a profile from `npu-probe first`.
    pub check_first: Option<bool>,
    /// Whether the CPU computes INT8 jobs that wait for the NPU, with the same results. Jobs are
    /// smaller then. If `None`, an engine lets it, except on a software model; without an engine
    /// it does.
    pub cpu_jobs: Option<bool>,
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
            // llama.cpp's default batch of a prompt.
            batch_rows: 512,
            profile: Profile::built_in(),
            unmeasured_tiles: None,
            check_first: None,
            cpu_jobs: None,
        }
    }
}

impl PlanOptions {
    /// Defaults for a board of which only the clock is known, with tiles within the envelope.
    #[must_use]
    pub fn uncalibrated(clock_hz: u64) -> Self {
        Self {
            profile: Arc::new(Profile::built_in().at_clock(clock_hz)),
            unmeasured_tiles: Some(false),
            ..Self::default()
        }
    }

    /// Defaults for a board on which calibration found all tiles, and all reuse of CBUF, right.
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

    /// The options by which the time of a plan is predicted on this side of the range. A plan that
    /// is made with them may differ from the one that an engine makes.
    #[must_use]
    pub fn on(&self, side: CostSide) -> Self {
        Self {
            profile: Arc::new(self.profile.on(side)),
            ..self.clone()
        }
    }

    /// Files to open of a device: one for each core that the profile lets work at the same time.
    #[must_use]
    pub fn files(&self, info: &DeviceInfo) -> usize {
        info.files().min(self.profile.choices.cores.value)
    }

    /// Defaults with the [`Profile`] of a device. If it has a profile that cannot be used, they
    /// have the built-in one, and the second value says why.
    #[must_use]
    pub fn for_device(info: &DeviceInfo) -> (Self, Option<ProfileError>) {
        let (profile, refused) = match Profile::find(info) {
            Ok(profile) => (profile, None),
            Err(error) => (Profile::built_in(), Some(error)),
        };
        let options = Self {
            limits: JobLimits::within(&profile.choices),
            unmeasured_tiles: Some(profile.allows_unmeasured_tiles(info)),
            profile,
            ..Self::default()
        };
        (options, refused)
    }
}

/// Why planning failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A dimension of the matmul is zero.
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
    /// A legal tile, larger than any that is known to have run on silicon.
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
    /// M is more than the rows of one call.
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
         the {limit} of a weight buffer; split K and add the results"
    )]
    GroupTooLarge {
        /// The depth of the weights.
        k: usize,
        /// Bytes of a group.
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
    /// The keys of a head do not fit one job of attention.
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
