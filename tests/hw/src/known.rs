// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows that are known to fail, with the kernels and the reasons.

use npu_model::driver::DriverProfile;

/// The list; its first lines explain it.
const LIST: &str = include_str!("../expected/rows.txt");

/// Why a row is expected to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownBug {
    pub(crate) always: bool,
    /// The file in `tests/hw/bugs`, without its ending.
    pub(crate) bug: &'static str,
}

/// The known bug of a row on a kernel, if there is one.
pub(crate) fn known(row: &str, kernel: &DriverProfile) -> Option<KnownBug> {
    lines().find_map(|[kernels, name, how, bug]| {
        let (first, last) = kernels.split_once("..")?;
        let at = position(kernel.name)?;
        let since = position(&format!("linux-{first}"))?;
        let fixed = position(&format!("linux-{last}")).is_some_and(|fixed| at >= fixed);
        let here = name == row && at >= since && !fixed;
        let always = how == "fails";
        here.then_some(KnownBug { always, bug })
    })
}

fn lines() -> impl Iterator<Item = [&'static str; 4]> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.try_into().ok()
    })
}

fn position(name: &str) -> Option<usize> {
    DriverProfile::ALL
        .iter()
        .position(|profile| profile.name == name)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::ROWS;

    #[test]
    fn every_line_names_a_kernel_a_row_and_a_file() {
        let written = LIST.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(lines().count(), written);
        for [kernels, name, how, bug] in lines() {
            let (first, last) = kernels.split_once("..").unwrap();
            assert!(position(&format!("linux-{first}")).is_some(), "{kernels}");
            assert!(last.is_empty() || position(&format!("linux-{last}")).is_some());
            assert!(ROWS.iter().any(|row| row.name == name), "{name}");
            assert!(["fails", "may-fail"].contains(&how), "{how}");
            let file = format!("{}/bugs/{bug}.md", env!("CARGO_MANIFEST_DIR"));
            assert!(Path::new(&file).exists(), "{file}");
        }
    }

    #[test]
    fn known_failures_depend_on_the_kernel() {
        let bug = known("bug-huge-bo", &DriverProfile::of_release("7.3")).unwrap();
        assert_eq!((bug.always, bug.bug), (true, "huge-bo"));
        assert_eq!(known("version", &DriverProfile::of_release("7.3")), None);
    }
}
