// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shadow directory: the files by which a system describes the device, as on an
//! RK3588 board with `rocket`.
//!
//! The preload library redirects these paths here. The node itself is only a name:
//! opening it connects to the server.
//!
//! Contents: the sysfs of an accel device under a platform device (Linux,
//! drivers/accel/drm_accel.c: class `accel`, no `drm` directory; the parent is the
//! device `rknn` that drivers/accel/rocket/rocket_drv.c registers), and the parts
//! of the device tree that name the chip and its NPU cores
//! (arch/arm64/boot/dts/rockchip/rk3588-base.dtsi).

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use tempfile::TempDir;

/// The shadow directory cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make {}: {error}{}", .what.display(), advice(.error))]
pub struct ShadowError {
    what: PathBuf,
    error: io::Error,
}

/// Advice for an error, which may have another cause than the directory.
fn advice(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => NO_DESCRIPTOR_REMEDY,
        Some(Errno::NFILE) => "",
        _ => " (set TMPDIR to use another directory for temporary files)",
    }
}

/// Advice for a process without a free descriptor, to follow the system's message.
pub(crate) const NO_DESCRIPTOR_REMEDY: &str = "; raise `ulimit -n`";

/// Prefix of all their names.
const PREFIX: &str = "rocket-npu-";

/// How many times to try to make one. Before it is locked, another server may take
/// it for left behind and remove it.
const TRIES: usize = 4;

/// A shadow directory; removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Shadow {
    _root: TempDir,
    /// The directory, locked as long as its server lives.
    _lock: OwnedFd,
    /// Its path, without links.
    path: PathBuf,
}

/// Locks the directory at `path`; `None` if this user has none there, or another
/// process has the lock.
///
/// # Errors
/// `EMFILE`, `ENFILE`: the answer is unknown.
fn lock(path: &Path) -> Result<Option<OwnedFd>, Errno> {
    match try_lock(path) {
        Err(errno @ (Errno::MFILE | Errno::NFILE)) => Err(errno),
        Err(_) => Ok(None),
        Ok(directory) => Ok(directory),
    }
}

fn try_lock(path: &Path) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    let own = rustix::fs::fstat(&directory)?;
    let there = rustix::fs::lstat(path)?;
    let same = (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino);
    Ok((same && own.st_uid == rustix::process::geteuid().as_raw()).then_some(directory))
}

/// Removes the directories of servers that were killed.
fn remove_left_behind(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let path = entry.path();
        if let Ok(Some(_lock)) = lock(&path) {
            let shown = path.display();
            tracing::debug!(path = %shown, "removing the directory of a server that was killed");
            if let Err(error) = fs::remove_dir_all(&path) {
                tracing::debug!(%error, "cannot remove it");
            }
        }
    }
}

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

/// Links, each with its target.
const LINKS: [(&str, &str); 7] = [
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
    /// Makes a shadow directory in the folder for temporary files.
    pub(crate) fn create_in(folder: &Path) -> Result<Self, ShadowError> {
        remove_left_behind(folder);
        let failed = |error| ShadowError {
            what: folder.join(format!("{PREFIX}*")),
            error,
        };
        for _ in 0..TRIES {
            let root = tempfile::Builder::new()
                .prefix(PREFIX)
                .tempdir_in(folder)
                // Leave out the path, which the error has already.
                .map_err(|error| failed(error.kind().into()))?;
            let locked = lock(root.path()).map_err(|errno| failed(errno.into()))?;
            if let Some(lock) = locked {
                return Self::fill(root, lock);
            }
        }
        Err(failed(io::ErrorKind::ResourceBusy.into()))
    }

    fn fill(root: TempDir, lock: OwnedFd) -> Result<Self, ShadowError> {
        let path = fs::canonicalize(root.path()).map_err(|error| ShadowError {
            what: root.path().to_owned(),
            error,
        })?;
        let shadow = Self {
            _root: root,
            _lock: lock,
            path,
        };
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

    pub(crate) fn path(&self) -> &Path {
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
        let shadow = Shadow::create_in(&std::env::temp_dir()).unwrap();
        for (path, _) in LINKS {
            let file = shadow.path().join(path);
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

    #[test]
    fn only_directories_of_killed_servers_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join("rocket-npu-left");
        fs::create_dir_all(left.join("dev/accel")).unwrap();
        let others = ["other-npu-x", "rocket-np"].map(|name| folder.path().join(name));
        others
            .iter()
            .for_each(|other| fs::create_dir(other).unwrap());
        let lock = folder.path().join("rocket-npu-0.lock");
        fs::write(&lock, b"").unwrap();
        let link = folder.path().join("rocket-npu-link");
        symlink(&others[0], &link).unwrap();

        let alive = Shadow::create_in(folder.path()).unwrap();
        assert!(!left.exists());
        let also = Shadow::create_in(folder.path()).unwrap();
        assert!(alive.path().join("dev/accel/accel0").exists());
        for stays in others.iter().chain([&lock, &link]) {
            assert!(stays.exists(), "{}", stays.display());
        }
        drop((alive, also));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = Shadow::create_in(Path::new("/no/such")).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("/no/such/rocket-npu-"), "{said}");
        assert!(said.contains("TMPDIR"), "{said}");
    }
}
