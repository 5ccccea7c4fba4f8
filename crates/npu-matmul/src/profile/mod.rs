// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of the board: how fast it is, on which side of contested facts its
//! silicon is, and which tiles have run.
//!
//! `npu-probe calibrate` measures it once and writes a file, [`Profile::find`] reads
//! it, and all that plans takes it as it is: nothing is decided by a measurement made
//! in passing, so that the same machine with the same file makes the same plans in
//! every run. Without a file [`Profile::built_in`] holds. docs/profile.md has the
//! file's place and fields.

mod choices;
mod envelope;
mod file;
mod kernel;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use rknpu_regcmd::timing::Machine;
use rocket_uapi::DeviceInfo;
use serde::{Deserialize, Serialize};

use crate::plan::HostCores;

pub use choices::{Choices, ReuseChoices, SourcedChoice};
pub use envelope::MeasuredTile;
pub use file::ProfileError;

/// Names a profile's file, before all other places.
const PROFILE_VARIABLE: &str = "ROCKET_PROFILE";

/// The file's place in a folder of configuration.
const PLACE: &str = "rocket-npu/profile.json";

/// The board that a profile is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Board {
    /// Its name in the device tree.
    pub board: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Whether times are those of the software model: modelled.
    pub is_model: bool,
}

impl Board {
    /// This machine, with this device.
    #[must_use]
    pub fn of(info: &DeviceInfo) -> Self {
        let text = |path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.trim_matches(|c: char| c.is_whitespace() || c == '\0')
                .to_owned()
        };
        Self {
            board: text("/proc/device-tree/model"),
            kernel: text("/proc/sys/kernel/osrelease"),
            is_model: info.is_model,
        }
    }
}

impl Board {
    /// Whether what was measured here holds there: on the same board, under a kernel of
    /// the same build.
    fn is_like(&self, other: &Self) -> bool {
        let Self {
            board,
            kernel,
            is_model,
        } = self;
        (board, *is_model) == (&other.board, other.is_model)
            && kernel::is_alike(kernel, &other.kernel)
    }
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let board = match &*self.board {
            "" => "a machine without a name",
            named => named,
        };
        write!(f, "{board}, Linux {}", self.kernel)?;
        f.write_str(if self.is_model {
            ", software model"
        } else {
            ""
        })
    }
}

/// On which side of a fact, which sources tell differently, this board is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContestedFact {
    /// Its name, as the software model's switches have it.
    pub id: String,
    /// The side that the board is on, by its name.
    pub verdict: String,
    /// The question that the fact answers, in a sentence.
    pub sentence: String,
}

/// All that is known of a board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// For people.
    pub name: Cow<'static, str>,
    /// What it was measured on; `None` if nothing was, and it holds everywhere.
    pub board: Option<Board>,
    /// Whether `npu-probe calibrate` has measured speeds, costs and tiles there; else the
    /// file has what `npu-probe first` found, and all else is as published.
    #[serde(default = "yes")]
    pub measured: bool,
    /// Clock, memory and start costs.
    pub machine: Machine,
    /// What packs and unpacks.
    pub host: HostCores,
    /// What programs and buffers do where sources differ or are silent.
    #[serde(default = "Choices::published")]
    pub choices: Choices,
    /// Tiles that have run on silicon, each with all smaller ones.
    pub envelope: Vec<MeasuredTile>,
    /// Contested facts that an experiment has decided.
    pub facts: Vec<ContestedFact>,
}

static BUILT_IN: LazyLock<Arc<Profile>> = LazyLock::new(|| {
    Arc::new(Profile {
        name: "RK3588, mainline, 200 MHz, unmeasured".into(),
        board: None,
        measured: false,
        machine: Machine::RK3588.at_clock(Machine::BOOT_CLOCK_HZ),
        host: HostCores::RK3588,
        choices: Choices::published(),
        envelope: envelope::published(),
        facts: Vec::new(),
    })
});

/// Of files before [`Profile::measured`].
const fn yes() -> bool {
    true
}

impl Profile {
    /// Whether its board was calibrated.
    #[must_use]
    pub const fn is_calibrated(&self) -> bool {
        self.board.is_some() && self.measured
    }

    /// Whether plans may have tiles that no board is known to have run: on a model, which
    /// does all that is legal, but not by a file that says what a board cannot do.
    #[must_use]
    pub const fn allows_unmeasured_tiles(&self, info: &DeviceInfo) -> bool {
        info.is_model && (self.board.is_none() || self.measured)
    }

    /// An RK3588 as mainline Linux leaves it (E-clock-boot), by published figures:
    /// what holds where nobody has measured.
    #[must_use]
    pub fn built_in() -> Arc<Self> {
        Arc::clone(&BUILT_IN)
    }

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

    fn find_in(file: Option<PathBuf>, info: &DeviceInfo) -> Result<Arc<Self>, ProfileError> {
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

    /// The same at another clock, in Hz.
    #[must_use]
    pub fn at_clock(&self, clock_hz: u64) -> Self {
        let mut profile = self.clone();
        profile.machine.clock_hz = clock_hz;
        profile
    }

    /// The file that [`Profile::find`] reads, in an environment.
    fn file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
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
