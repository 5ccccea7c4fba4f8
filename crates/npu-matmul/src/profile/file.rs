// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles as JSON files. docs/profile.md describes the fields.
//!
//! A file may come from anyone. Programs write such files, so an implausible value means damage:
//! the whole file is rejected.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rknpu_regcmd::timing::DriverCosts;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::values::Profile;

/// Largest accepted file, in bytes: enough for some thousand tiles.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Format name in the file.
const FORMAT: &str = "rocket-npu profile";

/// Version that is written, and the only one that is read.
const VERSION: u64 = 1;

/// Longest name, in bytes: reports and logs show it.
const TEXT_BYTES_MAX: usize = 256;

/// Valid clocks and rates, per second: 1 MHz or MB to 1 THz or TB.
const PER_SECOND: std::ops::RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;

/// Largest start cost, in picoseconds: one second.
const COST_PS_MAX: u64 = 1_000_000_000_000;

/// Largest slack behind an operand, in bytes.
const SLACK_BYTES_MAX: u64 = 1 << 20;

/// Valid counts, such as cores.
const COUNT: std::ops::RangeInclusive<u64> = 1..=1024;

/// Why a profile is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file cannot be read.
    #[error("{}: cannot read the profile: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The contents are damaged.
    #[error("{}: {source}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: Box<ProfileError>,
    },
    /// The file is longer than any valid profile.
    #[error("it is longer than {FILE_BYTES_MAX} bytes")]
    TooLong,
    /// The file is not JSON, or not a profile.
    #[error("it is not a board profile: {0}")]
    Json(#[from] serde_json::Error),
    /// The format name or version is unknown.
    #[error(
        "its format is {format:?}, version {version}, but this program reads {FORMAT:?}, \
         version {VERSION}: calibrate again"
    )]
    Format {
        /// The name.
        format: String,
        /// The version.
        version: u64,
    },
    /// A text field is too long or has more than one line.
    #[error("a text field is longer than {TEXT_BYTES_MAX} bytes or has more than one line")]
    Text,
    /// A number is outside the plausible range.
    #[error("{field} is {value}, which is out of range")]
    Number {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The profile was measured on another board.
    #[error(
        "{}: profile \"{name}\" is for {theirs}, but this is {here}; calibrate this board",
        file.display()
    )]
    Foreign {
        /// The file.
        file: PathBuf,
        /// The profile's name.
        name: String,
        /// The board that it was measured on.
        theirs: String,
        /// This board.
        here: String,
    },
}

/// The fields that every version has.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole<P> {
    format: String,
    version: u64,
    profile: P,
}

impl Profile {
    /// Reads a profile from a file, for any board.
    ///
    /// # Errors
    /// [`ProfileError`]: the file cannot be read, or its profile is not valid.
    pub fn read(file: &Path) -> Result<Self, ProfileError> {
        let json = contents(file).map_err(|source| ProfileError::Read {
            file: file.to_owned(),
            source,
        })?;
        Self::from_json(&json).map_err(|source| ProfileError::Damaged {
            file: file.to_owned(),
            source: Box::new(source),
        })
    }

    /// Reads a profile from JSON.
    ///
    /// # Errors
    /// [`ProfileError`] if it is not valid.
    pub fn from_json(json: &[u8]) -> Result<Self, ProfileError> {
        if json.len() as u64 > FILE_BYTES_MAX {
            return Err(ProfileError::TooLong);
        }
        let Head { format, version } = serde_json::from_slice(json)?;
        if format != FORMAT || version != VERSION {
            return Err(ProfileError::Format { format, version });
        }
        let whole: Value = serde_json::from_slice(json)?;
        let are_lines = has_lines_only(&whole);
        let profile = Whole::<Self>::deserialize(whole)?.profile;
        if !are_lines {
            return Err(ProfileError::Text);
        }
        profile.check_numbers()?;
        Ok(profile)
    }

    /// Checks that numbers are in their plausible ranges.
    fn check_numbers(&self) -> Result<(), ProfileError> {
        let (machine, dram, host) = (&self.machine, &self.machine.dram, &self.host);
        let DriverCosts {
            submit_ps,
            attach_ps,
            kick_ps,
            wake_ps,
        } = machine.driver;
        let rates = [
            ("clock_hz", machine.clock_hz),
            ("core_bytes_per_second", dram.core_bytes_per_second),
            ("shared_bytes_per_second", dram.shared_bytes_per_second),
            ("clock_hz", host.clock_hz),
            ("bytes_per_second", host.bytes_per_second),
            ("sync_bytes_per_second", host.sync_bytes_per_second),
        ];
        let [tasks, cores] = [&self.choices.job_tasks, &self.choices.cores]
            .map(|choice| u32::try_from(choice.value).unwrap_or(u32::MAX));
        let kernel = &self.kernel;
        let measured = [
            (
                "dirty_sync_bytes_per_second",
                kernel.dirty_sync_bytes_per_second,
                PER_SECOND,
            ),
            (
                "first_touch_bytes_per_second",
                kernel.first_touch_bytes_per_second,
                PER_SECOND,
            ),
            ("resume_ps", kernel.resume_ps, 0..=COST_PS_MAX),
            (
                "attention_macs_per_second",
                self.attention_macs_per_second,
                PER_SECOND,
            ),
            (
                "int8_macs_per_second",
                self.int8_macs_per_second,
                PER_SECOND,
            ),
        ];
        let measured = measured
            .into_iter()
            .filter_map(|(field, value, range)| Some((field, value?, range)));
        let counts = [
            ("job_tasks", tasks),
            ("cores at once", cores),
            ("core_bytes_per_clock", dram.core_bytes_per_clock),
            ("cores", host.cores),
            ("instructions_per_clock", host.instructions_per_clock),
        ];
        let costs = [submit_ps, attach_ps, kick_ps, wake_ps];
        let slack = self.choices.slack_bytes.value as u64;
        let rates = rates.map(|(field, rate)| (field, rate, PER_SECOND));
        let counts = counts.map(|(field, count)| (field, count.into(), COUNT));
        let costs = costs.map(|cost| ("a cost of the driver", cost, 0..=COST_PS_MAX));
        let all = rates.into_iter().chain(counts).chain(costs).chain(measured);
        for (field, value, range) in all.chain([("slack_bytes", slack, 0..=SLACK_BYTES_MAX)]) {
            if !range.contains(&value) {
                return Err(ProfileError::Number { field, value });
            }
        }
        Ok(())
    }

    /// Writes the profile as JSON for [`Profile::from_json`].
    ///
    /// # Errors
    /// [`ProfileError::TooLong`] if it has more tiles than a file may have.
    pub fn to_json(&self) -> Result<String, ProfileError> {
        let json = serde_json::to_string_pretty(&Whole {
            format: FORMAT.to_owned(),
            version: VERSION,
            profile: self,
        })? + "\n";
        if json.len() as u64 > FILE_BYTES_MAX {
            return Err(ProfileError::TooLong);
        }
        Ok(json)
    }
}

/// Reads at most one byte more than a valid file has.
fn contents(file: &Path) -> io::Result<Vec<u8>> {
    // Reading a pipe would block. So would kernel files such as /proc/kmsg, whose length is 0.
    let metadata = fs::metadata(file)?;
    if !metadata.is_file() || metadata.len() == 0 {
        return Err(io::Error::other("it is not a regular file, or it is empty"));
    }
    let mut json = Vec::new();
    File::open(file)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut json)?;
    Ok(json)
}

/// Whether each text in `value` is a short line.
fn has_lines_only(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= TEXT_BYTES_MAX && !text.contains(char::is_control),
        Value::Array(values) => values.iter().all(has_lines_only),
        Value::Object(fields) => fields.values().all(has_lines_only),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}
