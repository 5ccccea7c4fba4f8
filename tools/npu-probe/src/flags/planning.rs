// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that say what plans are made for, besides sizes and precision.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};

use clap::Args;
use npu_matmul::plan::{Conditions, int4_depth_within};
use npu_matmul::{Dtype, PlanOptions, Profile, Results};
use rocket_uapi::DeviceInfo;

pub(crate) const HERTZ_PER_MHZ: u64 = 1_000_000;

/// Options of whoever plans products.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PlanningFlags {
    /// Consecutive channels of the int4 weights that cannot saturate the NPU's
    /// 16-bit sums [default: of `plan` 480, as of any weights; else as many as
    /// the random weights allow]
    ///
    /// So many whose magnitudes add up to 4095 at most: 2016 where they are 2 on
    /// average. Plans cut K into even tiles of no more than that. The random
    /// weights of `bench` are then such ones.
    #[arg(long, value_name = "CHANNELS")]
    int4_depth: Option<NonZeroUsize>,

    /// Results of fp16 in binary16, which the NPU rounds where K is whole
    #[arg(long)]
    half_results: bool,

    #[command(flatten)]
    pub(crate) machine: MachineFlags,
}

/// What if the machine were another one: options of whoever models times.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct MachineFlags {
    /// What if the NPU had this clock, MHz [default: that of the board's profile]
    ///
    /// What was measured at another clock is then left out. `npu-probe calibrate`
    /// finds the real one.
    #[arg(long, value_name = "MHZ")]
    clock: Option<NonZeroU64>,

    /// What if so many cores of the CPU packed and unpacked while the NPU computes
    /// [default: as many as the board's profile has]
    ///
    /// Plans weigh their time, which is modelled, against the NPU's.
    #[arg(long, value_name = "NUMBER")]
    cpu_cores: Option<NonZeroU32>,

    /// Take tiles that are legal, but so large that none is known to have run on
    /// silicon; on the software model they are taken anyway
    #[arg(long)]
    unmeasured: bool,

    /// Take only the tiles that a board takes, also on the software model
    #[arg(long, conflicts_with = "unmeasured")]
    as_npu: bool,
}

impl MachineFlags {
    /// With the tiles that a board takes, also on the software model.
    pub(crate) const fn as_npu(self) -> Self {
        Self {
            as_npu: true,
            ..self
        }
    }

    /// Options of plans for this device, by its board's profile; and why the profile
    /// that there is is not used.
    pub(crate) fn options(&self, info: &DeviceInfo) -> (PlanOptions, Option<String>) {
        let (mut options, refused) = PlanOptions::for_device(info);
        let mut profile = Profile::clone(&options.profile);
        if let Some(clock) = self.clock {
            profile = profile.at_clock(clock.get().saturating_mul(HERTZ_PER_MHZ));
        }
        if let Some(cores) = self.cpu_cores {
            profile.host.cores = cores.get();
        }
        options.profile = profile.into();
        if self.as_npu || self.unmeasured {
            options.unmeasured_tiles = Some(self.unmeasured);
        }
        (options, refused.map(|error| error.to_string()))
    }
}

impl PlanningFlags {
    /// What plans are made for: so many rows of products of this precision.
    pub(crate) fn conditions(&self, dtype: Dtype, rows: usize) -> Conditions {
        Conditions {
            rows,
            results: self.results(dtype),
        }
    }

    /// The type of results of products of this precision.
    pub(crate) fn results(&self, dtype: Dtype) -> Results {
        match dtype {
            Dtype::Fp16 if self.half_results => Results::Halves,
            _ => Results::Sums,
        }
    }

    /// What `int4_depth` says of weights, rows of `k`, as they were asked for.
    pub(crate) fn int4_depth(&self, dtype: Dtype, k: usize) -> Option<usize> {
        self.int4_depth
            .filter(|_| dtype == Dtype::Int4)
            .map(|channels| int4_depth_within(k, channels.get()))
    }
}
