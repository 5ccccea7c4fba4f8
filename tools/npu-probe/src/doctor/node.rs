// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device node: its owner, and whether this user may open it. Nothing opens it.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use nix::sys::stat::{major, minor};
use nix::unistd::{AccessFlags, eaccess};
use rocket_uapi::Permission;

use super::root::SystemRoot;
use super::row::DoctorRow;

const CLASS: &str = "sys/class/accel";
const DIRECTORY: &str = "/dev/accel";
/// Major number of accel nodes (Linux, include/drm/drm_accel.h).
const ACCEL_MAJOR: u64 = 261;
/// The platform device for which the rocket driver makes its node. It has no driver.
const PARENT: &str = "platform:rknn";
/// Groups with lower numbers belong to the system, not to a user.
const FIRST_USER_GROUP: u32 = 1000;

/// A node's properties from stat(2), and whether this process may read and write it.
struct NodeStat {
    device: (u64, u64),
    mode: u32,
    gid: u32,
    is_usable: bool,
}

/// Rows of all nodes, and the first usable one.
pub(super) fn rows(root: &SystemRoot, driver_bound: bool) -> (Vec<DoctorRow>, Option<String>) {
    let mut usable = None;
    let mut rows = Vec::new();
    let mut others = Vec::new();
    for name in root.names(CLASS) {
        let modalias = root.line(&format!("{CLASS}/{name}/device/modalias"));
        if modalias.as_deref() != Some(PARENT) {
            others.push(format!("{DIRECTORY}/{name} is another driver's"));
            continue;
        }
        let row = judge(root, &name);
        if !row.is_problem() {
            usable.get_or_insert(format!("{DIRECTORY}/{name}"));
        }
        rows.push(row);
    }
    if rows.is_empty() {
        let remedy = if driver_bound {
            "Check `sudo dmesg | grep -i -e rocket -e drm`: the driver has cores but no node."
        } else {
            "Fix the rows above first: the driver creates the node with its first core."
        };
        rows.push(DoctorRow::problem("the NPU has no node", remedy).with(others));
    }
    (rows, usable.filter(|_| driver_bound))
}

/// The row of one node, a problem if this user may not use it.
fn judge(root: &SystemRoot, name: &str) -> DoctorRow {
    let path = format!("{DIRECTORY}/{name}");
    let wanted = root.line(&format!("{CLASS}/{name}/dev"));
    let Some(stat) = stat(root, &path) else {
        return DoctorRow::problem(
            format!("{path} is missing, although the kernel has the device"),
            "Check that udev runs. For a container, pass the node to it (`--device /dev/accel`).",
        );
    };
    let (major, minor) = stat.device;
    let group = group_name(root, stat.gid);
    let mode = stat.mode & 0o7777;
    let found = format!("{path} {major}:{minor}, mode {mode:04o}, group {group}");
    if major != ACCEL_MAJOR || wanted.is_some_and(|wanted| wanted != format!("{major}:{minor}")) {
        return DoctorRow::problem(
            format!("{found}: the numbers are not the kernel device's"),
            "Remove the node, and let udev create it again (`sudo udevadm trigger`).",
        );
    }
    if !stat.is_usable {
        // `doctor` is run in a shell, and its report names no users.
        let user = None;
        let who = Permission { mode, group, user }.to_string();
        return DoctorRow::problem(
            format!("{path}: this user may not open it"),
            capitalised(&who) + ".",
        );
    }
    DoctorRow::ok(found)
}

/// A node's properties. In a test directory a regular file replaces the node: MAJOR:MINOR MODE
/// GID, and `usable` or another word.
fn stat(root: &SystemRoot, path: &str) -> Option<NodeStat> {
    if root.is_running() {
        let node = root.at(path);
        let metadata = fs::metadata(&node).ok()?;
        let is_node = metadata.file_type().is_char_device();
        return is_node.then(|| NodeStat {
            device: (major(metadata.rdev()), minor(metadata.rdev())),
            mode: metadata.mode(),
            gid: metadata.gid(),
            // Access control lists count too; the mode does not show them.
            is_usable: eaccess(&node, AccessFlags::R_OK | AccessFlags::W_OK).is_ok(),
        });
    }
    let line = root.line(path)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let [device, mode, gid, usable] = words.try_into().ok()?;
    let (major, minor) = device.split_once(':')?;
    Some(NodeStat {
        device: (major.parse().ok()?, minor.parse().ok()?),
        mode: u32::from_str_radix(mode, 8).ok()?,
        gid: gid.parse().ok()?,
        is_usable: usable == "usable",
    })
}

/// The group's name in /etc/group, else its number.
fn group_name(root: &SystemRoot, gid: u32) -> String {
    let number = gid.to_string();
    if root.public && gid >= FIRST_USER_GROUP {
        return number;
    }
    let groups = root.text("etc/group").unwrap_or_default();
    let group_name = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let plain = name.chars().all(|c| c.is_ascii_graphic());
        (plain && fields.nth(1)? == number).then(|| name.to_owned())
    };
    groups.lines().find_map(group_name).unwrap_or(number)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
