// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of a command under sudo belong to the user who called sudo.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use nix::unistd::{Gid, Uid, User, setfsgid, setfsuid};
use npu_matmul::Profile;
use npu_matmul::profile::ProfileError;
use rocket_uapi::DeviceInfo;

/// The user who called sudo, if this process is root's.
fn caller() -> Option<(Uid, Gid)> {
    let number = |name| env::var(name).ok()?.parse::<u32>().ok();
    let (user, group) = (number("SUDO_UID")?, number("SUDO_GID")?);
    (Uid::effective().is_root() && user != 0).then(|| (Uid::from_raw(user), Gid::from_raw(group)))
}

/// Accesses files with the rights of the user who called sudo: new files are that user's, and a
/// link in the user's directory leads to nothing that only root may access. Other threads and
/// started programs keep root's rights.
pub(crate) fn as_caller<T>(access: impl FnOnce() -> T) -> T {
    struct Former(Uid, Gid);
    impl Drop for Former {
        fn drop(&mut self) {
            setfsuid(self.0);
            setfsgid(self.1);
        }
    }
    let _former = caller().map(|(user, group)| {
        // The group first: without root's user id it cannot be set.
        let group = setfsgid(group);
        Former(setfsuid(user), group)
    });
    access()
}

/// The profile of this board that programs of the user who called sudo use.
pub(crate) fn profile(info: &DeviceInfo) -> Result<Arc<Profile>, ProfileError> {
    let is_named = env::var_os("ROCKET_PROFILE").is_some_and(|file| !file.is_empty());
    let file = users_profile().filter(|file| file.exists());
    match (caller(), file) {
        (Some(_), Some(file)) if !is_named => as_caller(|| Profile::find_in(Some(file), info)),
        _ => Profile::find(info),
    }
}

/// The path of the profile of the user who called sudo, or else of the process's user.
pub(crate) fn users_profile() -> Option<PathBuf> {
    let home = caller().and_then(|(user, _)| Some(User::from_uid(user).ok()??.dir));
    match home {
        Some(home) if env::var_os("XDG_CONFIG_HOME").is_none() => {
            Some(home.join(".config/rocket-npu/profile.json"))
        }
        _ => Profile::users_file(),
    }
}
