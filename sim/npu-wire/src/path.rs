// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classification of paths: the device node, paths that describe the device, and others.

/// Major number of accel devices (Linux, `ACCEL_MAJOR`).
pub const DEVICE_MAJOR: u32 = 261;
/// Minor number of the first accel device.
pub const DEVICE_MINOR: u32 = 0;

/// Path of the node, also below the shadow directory.
pub const NODE: &[u8] = b"/dev/accel/accel0";

/// Last part of the node's path.
pub const NODE_NAME: &[u8] = b"accel0";

/// The kernel's sw_sync file, for fences that a program signals itself.
pub const SW_SYNC: &[u8] = b"/sys/kernel/debug/sync/sw_sync";

/// Paths that are the device node itself.
const NODES: [&[u8]; 2] = [NODE, b"/dev/char/261:0"];

/// Directories that a client sees from the shadow directory, with their contents.
const DIRECTORIES: [&[u8]; 10] = [
    b"/dev/accel",
    b"/sys/class/accel",
    b"/sys/dev/char/261:0",
    b"/sys/devices/platform/rknn",
    b"/sys/devices/platform/fdab0000.npu",
    b"/sys/devices/platform/fdac0000.npu",
    b"/sys/devices/platform/fdad0000.npu",
    b"/sys/bus/platform/drivers/rocket",
    b"/sys/firmware/devicetree",
    // On a board a link.
    b"/proc/device-tree",
];

/// Kind of a path in a program with the preload library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// The device node.
    Node,
    /// A path that describes the device; its file has the same path below the shadow
    /// directory.
    Shadow,
    /// [`SW_SYNC`]
    SwSync,
    /// Any other path.
    Elsewhere,
}

/// The kind of an absolute path that [`plain`] has normalised.
#[must_use]
pub fn path_kind(path: &[u8]) -> PathKind {
    if NODES.contains(&path) {
        PathKind::Node
    } else if path == SW_SYNC {
        PathKind::SwSync
    } else if DIRECTORIES
        .iter()
        .any(|directory| is_within(path, directory))
    {
        PathKind::Shadow
    } else {
        PathKind::Elsewhere
    }
}

/// Whether `path` is `directory` or in it.
fn is_within(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.first().is_none_or(|&byte| byte == b'/'))
}

/// Normalises an absolute path into `out`, and returns its length. It removes empty parts,
/// `.`, and `..` with the part before it if `is_directory` says that this part is a
/// directory and no link. `None` if the result is too long, or the path is not absolute.
#[must_use]
pub fn plain(path: &[u8], out: &mut [u8], is_directory: impl Fn(&[u8]) -> bool) -> Option<usize> {
    if path.first() != Some(&b'/') {
        return None;
    }
    let mut len = 0;
    for part in path.split(|&byte| byte == b'/') {
        if part.is_empty() || part == b"." {
            continue;
        }
        if part == b".." {
            let before = &out[..len];
            // A `..` that was kept cannot be removed by the next one.
            let parent = before.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            if len == 0 || (!before.ends_with(b"/..") && is_directory(before)) {
                len = parent;
                continue;
            }
        }
        *out.get_mut(len)? = b'/';
        out.get_mut(len + 1..len + 1 + part.len())?
            .copy_from_slice(part);
        len += 1 + part.len();
    }
    if len == 0 {
        *out.first_mut()? = b'/';
        len = 1;
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> PathKind {
        let mut out = [0; 128];
        let len = plain(path.as_bytes(), &mut out, |path| path != b"/link").unwrap();
        path_kind(&out[..len])
    }

    #[test]
    fn clients_find_one_device() {
        for path in [
            "/dev/accel/accel0",
            "/dev//accel/./accel0",
            "/dev/char/261:0",
            "/dev/accel/../accel/accel0",
            "/../tmp/x/../../dev/accel/accel0",
        ] {
            assert_eq!(of(path), PathKind::Node, "{path}");
        }
        for path in [
            "/dev/accel",
            "/dev/accel/",
            "/dev/accel/accel1",
            "/sys/class/accel/accel0/dev",
            "/sys/dev/char/261:0/device/uevent",
            "/proc/device-tree/compatible",
            "/sys/firmware/devicetree/base/compatible",
        ] {
            assert_eq!(of(path), PathKind::Shadow, "{path}");
        }
        assert_eq!(of("/sys/kernel/debug//sync/sw_sync"), PathKind::SwSync);
        for path in [
            "/sys/kernel/debug/sync/info",
            "/",
            "/dev",
            "/dev/accelerator",
            "/dev/dri/renderD128",
            "/sys/dev/char/261:01",
            "/proc/device-trees",
            "/home/dev/accel/accel0",
            "/dev/accel/../null",
            // The target of the link is unknown here.
            "/link/../dev/accel/accel0",
        ] {
            assert_eq!(of(path), PathKind::Elsewhere, "{path}");
        }
    }

    #[test]
    fn a_path_that_is_too_long_is_none() {
        assert_eq!(plain(b"/abc", &mut [0; 3], |_| true), None);
        assert_eq!(plain(b"/abc", &mut [0; 4], |_| true), Some(4));
        assert_eq!(plain(b"abc", &mut [0; 9], |_| true), None);
        assert_eq!(plain(b"//", &mut [0; 1], |_| true), Some(1));
        assert_eq!(plain(b"/a/..", &mut [0; 2], |_| true), Some(1));
        assert_eq!(plain(b"/a/../../b", &mut [0; 10], |_| false), Some(10));
    }
}
