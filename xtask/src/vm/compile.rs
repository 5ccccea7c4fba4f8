// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles a kernel for the guest, with the few drivers that a guest needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::arch::{Arch, first_missing};
use crate::process;

/// Configuration of the guest's kernel: the few drivers that a guest needs.
const FRAGMENT: &str = include_str!("kernel.config");

/// Configuration that lets the kernel look for mistakes of its own.
const KASAN: &str = include_str!("kasan.config");

/// What 7.3 has as part of SYSCTL, and earlier ones want to be asked for.
const BEFORE_7_3: &str = "CONFIG_PROC_SYSCTL=y\n";

/// Programs that building a kernel needs, and their packages.
const NEEDED: [&str; 7] = ["make", "gcc", "flex", "bison", "bc", "tar", "xz"];
const PACKAGES: &str = "make gcc gcc-aarch64-linux-gnu flex bison bc tar xz-utils";

/// A kernel takes ten minutes on two processors of its own.
const BUILD_LIMIT: Duration = Duration::from_secs(3 * 60 * 60);

/// The compiler, and how it describes itself.
#[derive(Debug)]
pub(super) struct Compiler {
    name: String,
    pub(super) version: String,
}

impl Compiler {
    /// The one for the guest.
    pub(super) fn of_guest() -> Self {
        let name = match Arch::Arm64.is_native() {
            true => "gcc".to_owned(),
            false => Arch::Arm64.cross_linker(),
        };
        let version = Command::new(&name).arg("--version").output();
        let version = version.map(|output| output.stdout).unwrap_or_default();
        let version = String::from_utf8_lossy(&version).into_owned();
        Self { name, version }
    }

    /// Compiles the tree at `source`, in `output`, which may hold what an
    /// earlier call left; returns the kernel.
    pub(super) fn compile(&self, source: &Path, output: &Path, kasan: bool) -> Result<PathBuf> {
        if let Some(missing) = first_missing(NEEDED.into_iter().chain([self.name.as_str()])) {
            bail!("`{missing}` is missing; it takes `apt-get install {PACKAGES}`");
        }
        fs::create_dir_all(output).context("making the directory")?;
        let fragment = output.join("fragment");
        fs::write(&fragment, configuration(kasan)).context("writing the configuration")?;
        let make = |target: &[&str], what| {
            // Others may use this machine meanwhile.
            let mut make = Command::new("nice");
            make.args(["-n", "10", "make", "ARCH=arm64"])
                .arg(format!("KCONFIG_ALLCONFIG={}", fragment.display()))
                .args(target)
                .current_dir(source);
            if output != source {
                make.arg(format!("O={}", output.display()));
            }
            if let Some(prefix) = self.name.strip_suffix("gcc") {
                make.arg(format!("CROSS_COMPILE={prefix}"));
            }
            run(&make, what)
        };
        make(&["allnoconfig"], "configuring")?;
        let config = fs::read_to_string(output.join(".config")).context("reading .config")?;
        if let Some(line) = ignored(&config, kasan) {
            bail!("the kernel's configuration has no `{line}`");
        }
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        make(&[&format!("-j{jobs}"), "Image"], "compiling")?;
        Ok(output.join("arch/arm64/boot/Image"))
    }
}

/// Runs a step of the build.
pub(super) fn run(command: &Command, what: &str) -> Result<()> {
    process::run(command, BUILD_LIMIT)
        .and_then(|output| output.checked(what))
        .map(drop)
}

/// The configuration of a kernel, a line for each option.
pub(super) fn configuration(kasan: bool) -> String {
    [FRAGMENT, BEFORE_7_3, if kasan { KASAN } else { "" }].concat()
}

/// A line of the fragments that did not come through.
fn ignored(config: &str, kasan: bool) -> Option<&'static str> {
    let wanted = FRAGMENT.lines().chain(KASAN.lines().filter(|_| kasan));
    let mut wanted = wanted.filter(|line| line.starts_with("CONFIG_"));
    wanted.find(|line| !config.lines().any(|got| got == *line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_in_a_configuration_is_told() {
        assert_eq!(ignored(FRAGMENT, false), None);
        assert_eq!(ignored(FRAGMENT, true), Some("CONFIG_KASAN=y"));
        assert_eq!(ignored(&configuration(true), true), None);
        let config = FRAGMENT.replace("CONFIG_DRM=y", "# CONFIG_DRM is not set");
        assert_eq!(ignored(&config, false), Some("CONFIG_DRM=y"));
    }
}
