// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that say what plans are made for, besides sizes, precision and clock.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::Args;
use npu_matmul::plan::{Conditions, HostCores, int4_depth_within};
use npu_matmul::{Dtype, Results};
use rknpu_regcmd::timing::Machine;

/// Those of an RK3588.
const DEFAULT_CPU_CORES: NonZeroU32 = NonZeroU32::new(HostCores::RK3588.cores).unwrap();

/// Options of whoever plans products.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PlanningFlags {
    /// Consecutive channels of the int4 weights that cannot saturate the NPU's
    /// 16-bit sums [default: of `plan` 480, as of any weights; else as many as
    /// the random weights allow]
    ///
    /// So many whose magnitudes add up to 4095 at most: 2016 where they are 2 on
    /// average. Plans cut K into even tiles of no more than that. The random
    /// weights of `bench` and `tune` are then such ones.
    #[arg(long, value_name = "CHANNELS")]
    int4_depth: Option<NonZeroUsize>,

    /// Results of fp16 in binary16, which the NPU rounds where K is whole
    #[arg(long)]
    half_results: bool,

    /// Cortex-A76 that pack and unpack while the NPU computes
    ///
    /// Plans weigh their time, which is modelled, against the NPU's.
    #[arg(long, value_name = "NUMBER", default_value_t = DEFAULT_CPU_CORES)]
    cpu_cores: NonZeroU32,
}

impl PlanningFlags {
    /// What plans are made for: so many rows of products of this precision.
    pub(crate) fn conditions(&self, dtype: Dtype, machine: Machine, rows: usize) -> Conditions {
        Conditions {
            machine,
            rows,
            results: self.results(dtype),
            host: HostCores {
                cores: self.cpu_cores.get(),
                ..HostCores::RK3588
            },
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
