// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bugs of the driver that are known of a kernel: data.

use npu_model::driver::DriverProfile;

use super::release::KernelVersion;
use super::row::DoctorRow;

/// The table; see there.
const TABLE: &str = include_str!("bugs.txt");

/// A line of the table.
struct DriverBug {
    since: KernelVersion,
    /// The first version without it.
    mended: Option<KernelVersion>,
    name: &'static str,
    meaning: &'static str,
}

impl DriverBug {
    fn parse(line: &'static str) -> Option<Self> {
        let (range, rest) = line.split_once(char::is_whitespace)?;
        let (name, meaning) = rest.trim_start().split_once(char::is_whitespace)?;
        let (since, mended) = range.split_once("..")?;
        Some(Self {
            since: KernelVersion::parse(since)?,
            mended: KernelVersion::parse(mended),
            name,
            meaning: meaning.trim(),
        })
    }

    fn is_in(&self, version: KernelVersion) -> bool {
        version >= self.since && self.mended.is_none_or(|mended| version < mended)
    }
}

fn table() -> impl Iterator<Item = DriverBug> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(DriverBug::parse)
}

/// The bugs of a kernel; none for one without the driver.
pub(super) fn row(version: KernelVersion) -> Option<DoctorRow> {
    const TOPIC: &str = "driver bugs";
    let known: Vec<DriverBug> = table().filter(|bug| bug.is_in(version)).collect();
    if known.is_empty() {
        return None;
    }
    let newest = DriverProfile::ALL.last();
    let newest =
        newest.and_then(|profile| KernelVersion::parse(profile.name.trim_start_matches("linux-")));
    let found = match newest {
        Some(newest) if version > newest => {
            format!(
                "{} of {newest}; nobody looked whether {version} still has them",
                known.len()
            )
        }
        _ => format!("{} known in {version}", known.len()),
    };
    let details = known
        .iter()
        .map(|bug| format!("{}: {}", bug.name, bug.meaning));
    let remedy = "Read docs/driver.md, `Bugs`, for what reaches them and for patches.";
    Some(DoctorRow::note(TOPIC, found, remedy).with(details))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The driver suite, whose list of expected failures has the same bugs.
    fn suite() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hw")
    }

    #[test]
    fn every_line_is_read() {
        let written = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(table().count(), written);
    }

    #[test]
    fn every_page_is_in_the_table() {
        for entry in fs::read_dir(suite().join("bugs")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if let Some(name) = name.strip_suffix(".md") {
                assert!(table().any(|bug| bug.name == name), "{name}");
            }
        }
    }

    #[test]
    fn versions_are_those_of_the_suite() {
        let rows = fs::read_to_string(suite().join("expected/rows.txt")).unwrap();
        for line in rows.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (since, mended) = words[0].split_once("..").unwrap();
            let same = table().any(|bug| {
                bug.name == words[3]
                    && Some(bug.since) == KernelVersion::parse(since)
                    && bug.mended == KernelVersion::parse(mended)
            });
            assert!(same, "{line}");
        }
    }

    #[test]
    fn versions_differ() {
        let has = |version, name: &str| {
            let row = row(version);
            row.is_some_and(|row| row.details.iter().any(|line| line.starts_with(name)))
        };
        assert!(has(KernelVersion(6, 18), "dangling-handle"));
        assert!(!has(KernelVersion(7, 1), "dangling-handle"));
        assert!(has(KernelVersion(7, 3), "use-after-close"));
        assert!(row(KernelVersion(6, 12)).is_none());
        let newer = row(KernelVersion(99, 0)).unwrap();
        assert!(newer.found.contains("nobody looked"), "{}", newer.found);
    }
}
