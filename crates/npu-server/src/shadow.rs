// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shadow directory: what a client sees where the system tells of the
//! device, as on an RK3588 board with `rocket`.
//!
//! The preload library redirects these paths here. The node itself is only a
//! name here: opening it connects to the server.
//!
//! Contents: the sysfs of an accel device under a platform device (Linux,
//! drivers/accel/drm_accel.c: class `accel`, no `drm` directory; the parent is
//! the device `rknn` that drivers/accel/rocket/rocket_drv.c registers), and of
//! the device tree what names the chip and its NPU cores
//! (arch/arm64/boot/dts/rockchip/rk3588-base.dtsi).

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The shadow directory cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make {} in the directory for temporary files: {error}", .what.display())]
pub struct ShadowError {
    what: PathBuf,
    error: io::Error,
}

/// A shadow directory; removed when this is dropped.
#[derive(Debug)]
pub struct Shadow {
    _root: TempDir,
    /// Where it is, without links on the way.
    path: PathBuf,
}

/// Files and what is in them.
const FILES: &[(&str, &[u8])] = &[
    // A name only: see above.
    ("dev/accel/accel0", b""),
    ("sys/devices/platform/rknn/accel/accel0/dev", b"261:0\n"),
    (
        "sys/devices/platform/rknn/accel/accel0/uevent",
        b"MAJOR=261\nMINOR=0\nDEVNAME=accel/accel0\nDEVTYPE=accel_minor\n",
    ),
    (
        "sys/devices/platform/rknn/uevent",
        b"MODALIAS=platform:rknn\n",
    ),
    ("sys/devices/platform/rknn/modalias", b"platform:rknn\n"),
    ("sys/bus/platform/drivers/rocket/module/version", b"0.0.0\n"),
    (
        "proc/device-tree/compatible",
        b"radxa,rock-5b\0rockchip,rk3588\0",
    ),
    ("proc/device-tree/model", b"Radxa ROCK 5B\0"),
];

/// The platform devices of the cores.
const CORES: [&str; 3] = ["fdab0000", "fdac0000", "fdad0000"];

/// Links and where they lead.
const LINKS: &[(&str, &str)] = &[
    (
        "sys/class/accel/accel0",
        "../../devices/platform/rknn/accel/accel0",
    ),
    (
        "sys/dev/char/261:0",
        "../../devices/platform/rknn/accel/accel0",
    ),
    (
        "sys/devices/platform/rknn/accel/accel0/device",
        "../../../rknn",
    ),
    (
        "sys/devices/platform/rknn/accel/accel0/subsystem",
        "../../../../../class/accel",
    ),
    (
        "sys/devices/platform/rknn/subsystem",
        "../../../bus/platform",
    ),
    ("dev/char/261:0", "../accel/accel0"),
    ("sys/firmware/devicetree/base", "../../../proc/device-tree"),
];

impl Shadow {
    /// Makes one.
    ///
    /// # Errors
    /// [`ShadowError`]
    pub fn create() -> Result<Self, ShadowError> {
        let root = tempfile::Builder::new()
            .prefix("rocket-npu-")
            .tempdir()
            .map_err(|error| ShadowError {
                what: "a directory".into(),
                error,
            })?;
        let path = fs::canonicalize(root.path()).map_err(|error| ShadowError {
            what: root.path().to_owned(),
            error,
        })?;
        let shadow = Self { _root: root, path };
        for (path, contents) in FILES {
            shadow.file(path, contents)?;
        }
        for core in CORES {
            let device = format!("sys/devices/platform/{core}.npu");
            shadow.file(
                &format!("{device}/uevent"),
                format!(
                    "DRIVER=rocket\nOF_NAME=npu\nOF_FULLNAME=/npu@{core}\n\
                     OF_COMPATIBLE_0=rockchip,rk3588-rknn-core\nOF_COMPATIBLE_N=1\n"
                )
                .as_bytes(),
            )?;
            shadow.link(
                &format!("{device}/driver"),
                "../../../bus/platform/drivers/rocket",
            )?;
            let from_driver = format!("../../../../devices/platform/{core}.npu");
            shadow.link(
                &format!("sys/bus/platform/drivers/rocket/{core}.npu"),
                &from_driver,
            )?;
            let node = format!("proc/device-tree/npu@{core}");
            shadow.file(
                &format!("{node}/compatible"),
                b"rockchip,rk3588-rknn-core\0",
            )?;
            shadow.file(&format!("{node}/status"), b"okay\0")?;
        }
        for (path, target) in LINKS {
            shadow.link(path, target)?;
        }
        Ok(shadow)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn make(
        &self,
        path: &str,
        make: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), ShadowError> {
        let what = self.path().join(path);
        let parent = what.parent().unwrap_or(self.path());
        fs::create_dir_all(parent)
            .and_then(|()| make(&what))
            .map_err(|error| ShadowError { what, error })
    }

    fn file(&self, path: &str, contents: &[u8]) -> Result<(), ShadowError> {
        self.make(path, |path| fs::write(path, contents))
    }

    fn link(&self, path: &str, target: &str) -> Result<(), ShadowError> {
        self.make(path, |path| symlink(target, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_leads_somewhere() {
        let shadow = Shadow::create().unwrap();
        for (path, _) in LINKS {
            let file = shadow.path().join(path);
            // The bus's own directory has nothing but drivers.
            assert!(file.exists(), "{path}");
        }
        let chip = shadow
            .path()
            .join("sys/firmware/devicetree/base/compatible");
        assert!(fs::read(chip).unwrap().ends_with(b"rockchip,rk3588\0"));
        let number = shadow.path().join("sys/class/accel/accel0/dev");
        assert_eq!(fs::read(number).unwrap(), b"261:0\n");
        let root = shadow.path().to_owned();
        drop(shadow);
        assert!(!root.exists());
    }
}
