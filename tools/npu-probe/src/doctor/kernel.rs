// SPDX-License-Identifier: MIT OR Apache-2.0
//! The running kernel: its version and its configuration.

use std::io::Read;

use flate2::read::GzDecoder;
use rocket_uapi::KernelVersion;

use super::bugs;
use super::root::SystemRoot;
use super::row::DoctorRow;
use crate::base::table::joined;

const RELEASE: &str = "proc/sys/kernel/osrelease";
const OPTIONS: [&str; 2] = ["CONFIG_DRM_ACCEL_ROCKET", "CONFIG_ROCKCHIP_IOMMU"];
/// Most bytes of a configuration; arm64's have 300 KiB.
const MOST_BYTES: u64 = 4 << 20;

#[derive(Debug)]
pub(super) struct RunningKernel {
    /// The release; empty if it is not readable.
    pub(super) release: String,
    pub(super) version: Option<KernelVersion>,
}

impl RunningKernel {
    pub(super) fn of(root: &SystemRoot) -> Self {
        let release = root.line(RELEASE).unwrap_or_default();
        let version = KernelVersion::parse(&release);
        Self { release, version }
    }

    /// Whether a mainline kernel of this version has the driver.
    pub(super) fn may_have_rocket(&self) -> bool {
        self.version
            .is_none_or(|version| version >= KernelVersion::FIRST_WITH_ROCKET)
    }

    /// The row of the release. `bound`: a rocket driver is bound, whatever the version.
    pub(super) fn row(&self, bound: bool) -> DoctorRow {
        let (first, release) = (KernelVersion::FIRST_WITH_ROCKET, &self.release);
        match self.version {
            Some(version) if self.may_have_rocket() => match bugs::missing_fixes(version) {
                None => DoctorRow::ok(format!("{release}: has all known driver fixes")),
                Some((bugs, update)) => DoctorRow::note(
                    format!("{release}: lacks the fix for {}", bugs.join(", ")),
                    format!(
                        "Update to {update} or later, unless your distribution has added the fix \
                         to its kernel."
                    ),
                ),
            },
            Some(_) if bound => DoctorRow::note(
                format!("{release}: its rocket driver is not mainline's"),
                format!("Use a mainline kernel, {first} or later, if the driver misbehaves."),
            ),
            Some(_) => DoctorRow::problem(
                format!("{release}: no rocket driver; mainline has it since {first}"),
                format!(
                    "Boot a mainline kernel, {first} or later, with the device tree of the \
                     same version."
                ),
            ),
            None => DoctorRow::note(
                format!("`{release}` has no readable version"),
                format!("Check that `uname -r` is {first} or later."),
            ),
        }
    }

    /// The row of the options that the driver needs. If `bound`, the driver works, so
    /// they are set.
    pub(super) fn options_row(&self, root: &SystemRoot, bound: bool) -> DoctorRow {
        let Some((place, config)) = self.config(root) else {
            return if bound {
                DoctorRow::ok("not readable; the driver is loaded")
            } else {
                DoctorRow::note(
                    "not readable (/proc/config.gz, /boot)",
                    "Check that the kernel was built with CONFIG_DRM_ACCEL_ROCKET and \
                     CONFIG_ROCKCHIP_IOMMU.",
                )
            };
        };
        let values = OPTIONS.map(|option| (option, value(&config, option)));
        let list = values.map(|(option, value)| format!("{option}={}", value.unwrap_or("n")));
        let found = format!("{} ({place})", list.join(", "));
        if bound {
            return DoctorRow::ok(found);
        }
        let missing = values.iter().filter(|(_, value)| value.is_none());
        let missing = joined(missing.map(|(option, _)| option), " and ");
        if !missing.is_empty() {
            let remedy = format!("Use a kernel that was built with {missing}.");
            return DoctorRow::problem(found, remedy);
        }
        if values[0].1 == Some("m") && self.lacks_module(root) {
            return DoctorRow::problem(
                format!("{found}, but /lib/modules has no rocket module"),
                "Install the package with the modules of this exact kernel version.",
            );
        }
        DoctorRow::ok(found)
    }

    /// Whether the driver is built into the kernel, by its configuration.
    pub(super) fn has_rocket_built_in(&self, root: &SystemRoot) -> bool {
        let config = self.config(root);
        config.is_some_and(|(_, config)| value(&config, OPTIONS[0]) == Some("y"))
    }

    /// A readable configuration, and its path.
    fn config(&self, root: &SystemRoot) -> Option<(String, String)> {
        let packed = root.bytes("proc/config.gz");
        if let Some(text) = packed.as_deref().and_then(gunzip) {
            return Some(("/proc/config.gz".to_owned(), text));
        }
        let release = self.file_name()?;
        let places = [
            format!("/boot/config-{release}"),
            format!("/lib/modules/{release}/config"),
        ];
        places
            .into_iter()
            .find_map(|place| Some((place.clone(), root.text(&place)?)))
    }

    /// Whether the kernel's list of modules exists and lacks rocket.
    fn lacks_module(&self, root: &SystemRoot) -> bool {
        let Some(release) = self.file_name() else {
            return false;
        };
        let list = root.text(&format!("lib/modules/{release}/modules.dep"));
        list.is_some_and(|list| !list.contains("/rocket.ko"))
    }

    /// The release, if it can be part of a path.
    fn file_name(&self) -> Option<&str> {
        let release = self.release.as_str();
        (!release.is_empty() && !release.contains('/')).then_some(release)
    }
}

/// The value of an option, if it is `y` or `m`.
fn value<'a>(config: &'a str, option: &str) -> Option<&'a str> {
    let option_value = |line: &'a str| line.strip_prefix(option)?.strip_prefix('=');
    let value = config.lines().find_map(option_value)?.trim();
    ["y", "m"].contains(&value).then_some(value)
}

fn gunzip(packed: &[u8]) -> Option<String> {
    let mut bytes = Vec::new();
    let mut unpacked = GzDecoder::new(packed).take(MOST_BYTES + 1);
    unpacked.read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MOST_BYTES).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_set_or_not() {
        let config = "# CONFIG_A is not set\nCONFIG_B=m\nCONFIG_C=y\nCONFIG_CC=\"y\"\n";
        for (option, set) in [
            ("CONFIG_A", None),
            ("CONFIG_B", Some("m")),
            ("CONFIG_C", Some("y")),
            ("CONFIG_CC", None),
            ("CONFIG_D", None),
        ] {
            assert_eq!(value(config, option), set, "{option}");
        }
    }
}
