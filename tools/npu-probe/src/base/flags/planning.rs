// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of commands that plan matmuls or model times.

use std::num::{NonZeroU32, NonZeroU64};

use clap::Args;
use npu_matmul::{PlanOptions, Profile};
use rocket_uapi::DeviceInfo;

use super::number::count;

pub(crate) const HERTZ_PER_MHZ: u64 = 1_000_000;

/// Options of commands that model times: assume another machine.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct MachineFlags {
    /// Assume this NPU clock, MHz [default: the clock in the profile]
    ///
    /// Measurements at another clock are then ignored. `npu-probe calibrate` measures the real
    /// clock.
    #[arg(long, value_name = "MHZ", value_parser = count::<NonZeroU64>)]
    clock: Option<NonZeroU64>,

    /// Assume this many CPU cores [default: the number in the profile]
    ///
    /// They pack and unpack while the NPU computes. Plans compare their modelled time with the NPU's.
    #[arg(long, value_name = "NUMBER", value_parser = count::<NonZeroU32>)]
    cpu_cores: Option<NonZeroU32>,

    /// Use legal tiles that are not known to have run on silicon
    ///
    /// The software model uses them by default.
    #[arg(long)]
    unmeasured: bool,

    /// Use only the tiles of a board, also on the model
    #[arg(long, hide_short_help = true, conflicts_with = "unmeasured")]
    as_npu: bool,
}

impl MachineFlags {
    /// The same options, but with the tiles that a board would use, also on the software
    /// model.
    pub(crate) const fn as_npu(self) -> Self {
        Self {
            as_npu: true,
            ..self
        }
    }

    /// Plan options for this device, from its board's profile; and why an existing profile is
    /// not used.
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
