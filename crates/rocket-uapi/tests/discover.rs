// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the errors for unusable nodes.
#![cfg(not(miri))] // files and devices of the host
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::os::unix::fs::symlink;
use std::path::Path;

use rocket_uapi::{Device, Error, Permission};

#[test]
fn no_node_at_all_names_the_driver_and_what_to_check() {
    let directory = tempfile::tempdir().unwrap();
    for path in [
        directory.path().to_owned(),
        directory.path().join("missing"),
    ] {
        let error = Device::discover_in(&path).unwrap_err();
        assert_eq!(error.refused.len(), 1);
        let text = error.to_string();
        assert!(text.contains("modprobe rocket"), "{text}");
        assert!(text.contains("6.18"), "{text}");
    }
}

#[test]
fn every_node_is_explained_in_the_order_of_the_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    // Create a file, a device that is not DRM's, a broken link, and two files without a
    // number.
    std::fs::write(path("accel10"), "").unwrap();
    symlink("/dev/null", path("accel9")).unwrap();
    symlink("/nowhere/at/all", path("accel2")).unwrap();
    std::fs::write(path("accel"), "").unwrap();
    std::fs::write(path("accelerate"), "").unwrap();
    let error = Device::discover_in(directory.path()).unwrap_err();
    let names: Vec<_> = error
        .refused
        .iter()
        .map(|node| node.path.file_name().unwrap().to_str().unwrap())
        .collect();
    assert_eq!(names, ["accel2", "accel9", "accel10"]);
    let reason = |index: usize| error.refused[index].reason.as_str();
    assert_eq!(reason(0), Error::NoSuchNode.to_string());
    assert_eq!(reason(1), Error::NotADevice.to_string());
    assert_eq!(reason(2), Error::NotADevice.to_string());
}

#[test]
fn a_named_node_is_explained_too() {
    let open = |path: &str| Device::open(Path::new(path)).unwrap_err();
    assert_eq!(open("/dev/null"), Error::NotADevice);
    assert_eq!(open("/nowhere/at/all"), Error::NoSuchNode);
    assert_eq!(open("/"), Error::NotADevice);
}

#[test]
fn a_permission_error_says_which_group_helps() {
    let text = |mode, group: &str| {
        let group = group.to_owned();
        let user = Some("_llama-server".to_owned());
        Error::NoPermission(Permission { mode, group, user }).to_string()
    };
    let member = text(0o660, "render");
    assert!(
        member.contains("usermod -aG render _llama-server"),
        "{member}"
    );
    for nobody in [text(0o600, "render"), text(0o660, "root")] {
        assert!(nobody.contains("udev rule"), "{nobody}");
    }
}
