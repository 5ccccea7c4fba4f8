// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cores that the driver drives, and their chip, as sysfs lists them.
//!
//! The uAPI reports neither. Containers mask the device tree below /sys/firmware, but not
//! the `uevent` files of devices.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::error::Error;

/// Directory of the driver, with a link for each device that it drives.
const DRIVER: &str = "sys/bus/platform/drivers/rocket";

/// `compatible` of a core of the RK3588 (Linux, rockchip,rk3588-rknn-core.yaml).
pub const CORE_COMPATIBLE: &str = "rockchip,rk3588-rknn-core";

/// End of the names of the NPU's devices.
const NPU: &str = ".npu";

/// Start of the lines of a `uevent` with the names of the device tree.
const COMPATIBLE: &str = "OF_COMPATIBLE_";

/// End of the line of their number.
const NUMBER: &str = "N=";

/// More bytes than a `uevent` has: it is one page at most.
const MOST_BYTES: u64 = 4096;

/// The devices that the rocket driver drives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundCores {
    /// Names of the RK3588's cores, such as `fdab0000.npu`, sorted. A device whose chip is
    /// unknown counts as one.
    pub names: Vec<String>,
    /// The first name of the device tree of a device that is not a core of the RK3588, if
    /// there is one.
    pub other: Option<String>,
}

impl BoundCores {
    /// Reads the devices of the system below `root`. What cannot be read is left out: then
    /// the number of cores and the chip are unknown.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        let mut cores = Self::default();
        for entry in fs::read_dir(root.join(DRIVER)).into_iter().flatten() {
            let Ok(entry) = entry else { continue };
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if !name.ends_with(NPU) {
                continue;
            }
            match compatible(&entry.path().join("uevent")) {
                Some(names) if names.iter().all(|name| name != CORE_COMPATIBLE) => {
                    cores.other = cores.other.or_else(|| names.into_iter().next());
                }
                // Without names the chip is unknown, which is no reason to refuse it.
                Some(_) | None => cores.names.push(name),
            }
        }
        cores.names.sort();
        cores
    }

    /// Fails if the driver drives another chip's NPU, and not the RK3588's.
    pub(crate) fn check_chip(&self) -> Result<(), Error> {
        match &self.other {
            Some(other) if self.names.is_empty() => Err(Error::OtherChip(other.clone())),
            _ => Ok(()),
        }
    }

    /// The number of cores; `chips` if it is unknown, with a note.
    pub(crate) fn count_or(&self, chips: u32) -> u32 {
        match u32::try_from(self.names.len()) {
            Ok(count @ 1..) => count,
            _ => {
                tracing::info!(
                    "/{DRIVER} lists no core of an RK3588, so the NPU is taken for one with \
                     {chips} cores"
                );
                chips
            }
        }
    }
}

/// The names of the device tree in a `uevent`; `None` if there are none.
fn compatible(uevent: &Path) -> Option<Vec<String>> {
    let mut text = String::new();
    let file = File::open(uevent).ok()?;
    file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(COMPATIBLE));
    let names: Vec<String> = lines
        .filter(|rest| !rest.starts_with(NUMBER))
        .filter_map(|rest| Some(rest.split_once('=')?.1.to_owned()))
        .collect();
    (!names.is_empty()).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system whose driver has devices of these names, each with the names of the device
    /// tree; `None`: a directory without a `uevent`, such as `module`.
    fn read(devices: &[(&str, Option<&[&str]>)]) -> BoundCores {
        let root = tempfile::tempdir().unwrap();
        for (device, names) in devices {
            let directory = root.path().join(DRIVER).join(device);
            fs::create_dir_all(&directory).unwrap();
            if let Some(names) = names {
                let mut text = format!(
                    "DRIVER=rocket\nOF_NAME=npu\nOF_COMPATIBLE_N={}\n",
                    names.len()
                );
                for (index, name) in names.iter().enumerate() {
                    text += &format!("OF_COMPATIBLE_{index}={name}\n");
                }
                fs::write(directory.join("uevent"), text).unwrap();
            }
        }
        BoundCores::of(root.path())
    }

    const RK3588: Option<&[&str]> = Some(&[CORE_COMPATIBLE]);
    const RK3576: Option<&[&str]> = Some(&["rockchip,rk3576-rknn-core"]);

    #[test]
    fn cores_are_counted() {
        let three = [
            ("fdac0000.npu", RK3588),
            ("module", None),
            ("fdab0000.npu", RK3588),
        ];
        let cores = read(&three);
        assert_eq!(cores.names, ["fdab0000.npu", "fdac0000.npu"]);
        assert_eq!((cores.check_chip(), cores.count_or(3)), (Ok(()), 2));
        let newer = Some(&["rockchip,rk3599-rknn-core", CORE_COMPATIBLE][..]);
        assert_eq!(read(&[("fdab0000.npu", newer)]).count_or(3), 1);
    }

    #[test]
    fn another_chip_is_refused() {
        let cores = read(&[("27700000.npu", RK3576), ("27710000.npu", RK3576)]);
        let other = "rockchip,rk3576-rknn-core".to_owned();
        assert_eq!(cores.check_chip(), Err(Error::OtherChip(other)));
    }

    #[test]
    fn unreadable_names_refuse_nothing() {
        for (devices, count) in [
            (&[][..], 3),
            (&[("module", None)][..], 3),
            (&[("fdab0000.npu", None)][..], 1),
            (&[("fdab0000.npu", Some(&[][..]))][..], 1),
        ] {
            let cores = read(devices);
            assert_eq!((cores.check_chip(), cores.count_or(3)), (Ok(()), count));
        }
    }
}
