// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locates this machine's profile.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use rocket_uapi::DeviceInfo;

use super::board::Board;
use super::file::ProfileError;
use super::values::Profile;

/// Environment variable with the path of a profile; it precedes all other places.
pub(super) const PROFILE_VARIABLE: &str = "ROCKET_PROFILE";

/// Path within a configuration directory.
pub(super) const PLACE: &str = "rocket-npu/profile.json";

impl Profile {
    /// Returns the profile of this device's board. The file is `ROCKET_PROFILE`, else
    /// `rocket-npu/profile.json` in the user's configuration directory (`XDG_CONFIG_HOME`, else
    /// `~/.config`), else in `/etc`. Without a file it returns [`Profile::built_in`].
    ///
    /// # Errors
    /// [`ProfileError`] if the file is not valid or is for another board. Use the built-in profile
    /// then.
    pub fn find(info: &DeviceInfo) -> Result<Arc<Self>, ProfileError> {
        Self::find_in(Self::file(|name| std::env::var_os(name)), info)
    }

    /// Returns the profile in `file`, if it is of this device's board; [`Profile::built_in`]
    /// without a file.
    ///
    /// # Errors
    /// As for [`Profile::find`].
    pub fn find_in(file: Option<PathBuf>, info: &DeviceInfo) -> Result<Arc<Self>, ProfileError> {
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

    /// The file that [`Profile::find`] reads in this environment.
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

    /// Path of the user's own profile.
    #[must_use]
    pub fn users_file() -> Option<PathBuf> {
        Some(user_folder(|name| std::env::var_os(name))?.join(PLACE))
    }
}

/// The user's configuration directory.
fn user_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The XDG specification says to ignore relative paths.
    let absolute = |name| {
        let path = PathBuf::from(variable(name)?);
        path.is_absolute().then_some(path)
    };
    absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))
}
