// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe model`.

use std::path::PathBuf;

use clap::Args;

use super::common::{DeviceFlags, ReportFlags};
use super::planning::MachineFlags;

/// Options of `model`.
#[derive(Debug, Args)]
pub(crate) struct GgufFlags {
    /// The model, a GGUF file; of a split model, any part
    pub(crate) file: PathBuf,

    /// Memory limit for packed weights: bytes, or with K, M or G [default: like the backend
    /// for llama.cpp, half of what is available now]
    ///
    /// The backend reads the same limit from GGML_ROCKET_MEM.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) mem: Option<u64>,

    #[command(flatten)]
    pub(crate) machine: MachineFlags,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

fn bytes(text: &str) -> Result<u64, String> {
    let wanted = || "expected a number of bytes, or a number with K, M or G".to_owned();
    npu_offload::parse_bytes(text).ok_or_else(wanted)
}
