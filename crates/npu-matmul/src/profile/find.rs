// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the profile of this machine is.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use rocket_uapi::DeviceInfo;

use super::board::Board;
use super::file::ProfileError;
use super::values::Profile;

/// Names a profile's file, before all other places.
pub(super) const PROFILE_VARIABLE: &str = "ROCKET_PROFILE";

/// The file's place in a folder of configuration.
pub(super) const PLACE: &str = "rocket-npu/profile.json";

impl Profile {
    /// The profile in the file that there is for users of this device: the one that
    /// `ROCKET_PROFILE` names, else `rocket-npu/profile.json` in the user's
    /// configuration (`XDG_CONFIG_HOME`, else `~/.config`), else in `/etc`. Without a
    /// file the built-in one.
    ///
    /// # Errors
    /// What is wrong with the file, in particular that it is another board's; then
    /// the built-in one holds.
    pub fn find(info: &DeviceInfo) -> Result<Arc<Self>, ProfileError> {
        Self::find_in(Self::file(|name| std::env::var_os(name)), info)
    }

    pub(super) fn find_in(
        file: Option<PathBuf>,
        info: &DeviceInfo,
    ) -> Result<Arc<Self>, ProfileError> {
        let Some(file) = file else {
            return Ok(Self::built_in());
        };
        let profile = Self::read(&file)?;
        let here = Board::of(info);
        match &profile.board {
            Some(board) if board.is_like(&here) => Ok(Arc::new(profile)),
            board => Err(ProfileError::Foreign {
                name: profile.name.into_owned(),
                theirs: board
                    .as_ref()
                    .map_or_else(|| "no board".to_owned(), Board::to_string),
                here: here.to_string(),
                file,
            }),
        }
    }

    /// The file that [`Profile::find`] reads, in an environment.
    pub(super) fn file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let path = variable(PROFILE_VARIABLE).filter(|value| !value.is_empty());
        if let Some(file) = path {
            return Some(file.into());
        }
        let folders = [user_folder(variable), Some("/etc".into())];
        let files = folders.into_iter().flatten();
        files
            .map(|folder| folder.join(PLACE))
            .find(|file| file.exists())
    }

    /// Where the user's own profile is.
    #[must_use]
    pub fn users_file() -> Option<PathBuf> {
        Some(user_folder(|name| std::env::var_os(name))?.join(PLACE))
    }
}

/// The user's configuration.
fn user_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The XDG specification has relative ones ignored.
    let absolute = |name| {
        let path = PathBuf::from(variable(name)?);
        path.is_absolute().then_some(path)
    };
    absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))
}
