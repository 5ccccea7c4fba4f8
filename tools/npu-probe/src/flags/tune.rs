// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe tune`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use super::measuring::MeasuringFlags;

/// Options of `tune`.
#[derive(Debug, Args)]
pub(crate) struct TuneFlags {
    #[command(flatten)]
    pub(crate) measuring: MeasuringFlags,

    /// Plans to try for each product, the best ones by modelled time
    #[arg(long, value_name = "NUMBER", default_value = "6")]
    pub(crate) candidates: NonZeroUsize,

    /// Write the fastest ones into this file, for `bench --plans`, `plan --plans`
    /// and GGML_ROCKET_PLANS
    ///
    /// Plans that it has for other products stay, if they are for the same
    /// device, driver and clock.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}
