// SPDX-License-Identifier: MIT OR Apache-2.0
//! Known driver bugs, by kernel version.

use npu_model::driver::DriverProfile;
use rocket_uapi::KernelVersion;

use super::row::DoctorRow;

/// The table of bugs; its file explains the format.
const TABLE: &str = include_str!("bugs.txt");

struct DriverBug {
    since: KernelVersion,
    /// The first releases without the bug: of the main line, then of older stable
    /// series.
    fixed: Vec<KernelVersion>,
    name: &'static str,
    meaning: &'static str,
}

impl DriverBug {
    fn parse(line: &'static str) -> Option<Self> {
        let (range, rest) = line.split_once(char::is_whitespace)?;
        let (name, meaning) = rest.trim_start().split_once(char::is_whitespace)?;
        let (since, fixed) = range.split_once("..")?;
        let fixed = fixed.split(',').filter(|version| !version.is_empty());
        Some(Self {
            since: KernelVersion::parse(since)?,
            fixed: fixed.map(KernelVersion::parse).collect::<Option<_>>()?,
            name,
            meaning: meaning.trim(),
        })
    }

    fn is_in(&self, version: KernelVersion) -> bool {
        let newest = self.fixed.iter().max();
        let has_fix = |fixed: &KernelVersion| {
            let is_in_line = Some(fixed) == newest || fixed.series() == version.series();
            is_in_line && version >= *fixed
        };
        version >= self.since && !self.fixed.iter().any(has_fix)
    }

    /// The nearest release without the bug, for a kernel with it.
    fn update_of(&self, version: KernelVersion) -> Option<KernelVersion> {
        let newer = self.fixed.iter().filter(|fixed| **fixed > version);
        newer.min().copied()
    }
}

fn table() -> impl Iterator<Item = DriverBug> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(DriverBug::parse)
}

/// Bugs of a kernel that a later release fixes, and the nearest release without them; `None`
/// if there are none.
pub(super) fn missing_fixes(version: KernelVersion) -> Option<(Vec<&'static str>, KernelVersion)> {
    let fixed = table().filter(|bug| bug.is_in(version));
    let fixed = fixed.filter_map(|bug| Some((bug.name, bug.update_of(version)?)));
    let (bugs, updates): (Vec<_>, Vec<_>) = fixed.unzip();
    Some((bugs, updates.into_iter().max()?))
}

/// The row of a kernel's bugs; none for a kernel without the driver.
pub(super) fn row(version: KernelVersion) -> Option<DoctorRow> {
    let known: Vec<DriverBug> = table().filter(|bug| bug.is_in(version)).collect();
    if known.is_empty() {
        return None;
    }
    let newest = DriverProfile::ALL.last();
    let newest =
        newest.and_then(|profile| KernelVersion::parse(profile.name.trim_start_matches("linux-")));
    let found = match newest {
        Some(newest) if version.series() > newest => {
            format!(
                "{} of {newest}; not checked whether {version} still has them",
                known.len()
            )
        }
        _ => format!("{} known in {version}", known.len()),
    };
    let details = known.iter().map(|bug| {
        let fixed = bug.update_of(version);
        let fixed = fixed.map_or(String::new(), |fixed| format!(" (fixed in {fixed})"));
        format!("{}: {}{fixed}", bug.name, bug.meaning)
    });
    let remedy = "See docs/driver.md, `Bugs`, for their triggers and for patches.";
    Some(DoctorRow::note(found, remedy).with(details))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The driver suite; its list of expected failures has the same bugs.
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
            let (since, fixed) = words[0].split_once("..").unwrap();
            let same = table().any(|bug| {
                bug.name == words[3]
                    && Some(bug.since) == KernelVersion::parse(since)
                    && bug.fixed.iter().max().copied() == KernelVersion::parse(fixed)
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
        let submit = ["null-domain", "task-double-free"];
        let create = ["dangling-handle", "null-domain", "task-double-free"];
        for (version, fixes) in [
            ("6.18", &create[..]),
            ("6.18.34", &create),
            ("6.18.35", &submit),
            ("6.18.40", &submit),
            // Has no stable release with the fix.
            ("6.19.14", &create),
            ("7.0.11", &create),
            ("7.0.12", &submit),
            ("7.1", &submit),
            ("7.2.12", &[]),
        ] {
            let version = KernelVersion::parse(version).unwrap();
            let missing = missing_fixes(version);
            let expected = (!fixes.is_empty()).then(|| (fixes.to_vec(), KernelVersion(7, 2, 0)));
            assert_eq!(missing, expected, "{version}");
            for bug in create {
                assert_eq!(has(version, bug), fixes.contains(&bug), "{version}");
            }
            assert!(has(version, "use-after-close"), "{version}");
        }
        assert!(row(KernelVersion(6, 12, 0)).is_none());
        let newer = row(KernelVersion(99, 0, 0)).unwrap();
        assert!(newer.found.contains("not checked"), "{}", newer.found);
        let same = row(KernelVersion(7, 3, 99)).unwrap();
        assert!(!same.found.contains("not checked"), "{}", same.found);
    }
}
