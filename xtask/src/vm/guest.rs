// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a guest: its kernel, its QEMU, its size.

use std::path::PathBuf;

use clap::Args;
use rknpu_chip::Contested;

/// Which kernel
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct KernelArgs {
    /// Linux version, of those that Debian offers: `7.3`, `7.3.4` [default: the
    /// newest]
    #[arg(long = "kernel", value_name = "VERSION")]
    pub(super) version: Option<String>,
    /// Enable KASAN, lockdep and other self-checks of the kernel
    #[arg(long)]
    pub(super) kasan: bool,
    /// Build this source tree instead, with its uncommitted changes
    #[arg(long = "kernel-tree", value_name = "PATH", conflicts_with_all = ["version", "patches"])]
    pub(super) tree: Option<PathBuf>,
    /// Apply a patch to the source; may be repeated
    #[arg(long = "patch", value_name = "FILE")]
    pub(super) patches: Vec<PathBuf>,
}

/// What a guest is like.
#[derive(Args, Clone, Debug)]
pub(crate) struct Guest {
    #[command(flatten)]
    pub(super) kernel: KernelArgs,
    /// Use this `qemu-system-aarch64` (7.2 or later) instead of Debian's 10.0
    #[arg(long, value_name = "PATH")]
    pub(super) qemu: Option<PathBuf>,
    /// Processors of the guest
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub(super) smp: u32,
    /// Cores of the NPU
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3))]
    pub(super) cores: u32,
    /// Imitate a board that differs: a side of a contested fact (`int8-reuse=garbage`), or
    /// `wedged=N`, a core whose tasks never end, or `stall=N`: each Nth job never starts; may be
    /// repeated
    #[arg(long, value_name = "NAME=SIDE", value_parser = npu_option)]
    pub(super) npu: Vec<String>,
    /// Kill the guest after this many seconds [default: 600; a shell: a day]
    #[arg(long, value_name = "SECONDS")]
    pub(super) limit: Option<u64>,
    /// Write the console of the guest's kernel to a file
    #[arg(long, value_name = "PATH")]
    pub(super) console: Option<PathBuf>,
}

/// Checks an option of the guest's NPU, and converts it for the plugin.
fn npu_option(text: &str) -> Result<String, String> {
    if text.starts_with("wedged=") || text.starts_with("stall=") {
        return Ok(text.to_owned());
    }
    match Contested::default().set(text) {
        Ok(()) => Ok(format!("fact={text}")),
        Err(error) => Err(error.to_string()),
    }
}
