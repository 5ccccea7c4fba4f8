// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of CI and the expected skips, read from text files.

/// The steps; the head of the file describes the format.
const STEPS: &str = include_str!("steps.txt");

/// Expected skips, one per line: `step: beginning of the line # reason`.
const EXPECTED_SKIPS: &str = include_str!("expected-skips.txt");

/// One step.
pub(super) struct CiStep {
    pub(super) name: &'static str,
    /// What it checks.
    pub(super) what: &'static str,
    /// Whether only the long run has this step, or this variant of it.
    pub(super) is_long: bool,
    /// Shell commands.
    pub(super) script: String,
}

/// All steps; with `long` also those of the long run.
pub(super) fn all(long: bool) -> Vec<CiStep> {
    let mut steps: Vec<CiStep> = Vec::new();
    let lines = STEPS.lines().filter(|line| !line.starts_with('#'));
    for line in lines {
        match (line.strip_prefix("    "), steps.last_mut()) {
            (Some(command), Some(step)) => step.script += &format!("{command}\n"),
            _ => {
                let Some((head, what)) = line.split_once(": ") else {
                    continue;
                };
                let (name, when) = head.split_once(' ').unwrap_or((head, ""));
                let (is_long, script) = (when == "(long)", String::new());
                // Its commands are still read, and dropped with it below.
                let name = match (when, long) {
                    ("(usual)", true) | ("(long)", false) => "",
                    _ => name,
                };
                steps.push(CiStep {
                    name,
                    what,
                    is_long,
                    script,
                });
            }
        }
    }
    steps.retain(|step| !step.name.is_empty());
    steps
}

/// Those of `skips` that are not expected in `step`. The modules of an ignored test
/// (`commands::report::a_page: why`) are left out in the list.
pub(super) fn unexpected_skips<'a>(step: &str, skips: &'a [String]) -> Vec<&'a str> {
    let expected: Vec<&str> = EXPECTED_SKIPS
        .lines()
        .filter_map(|line| line.split('#').next()?.split_once(':'))
        .filter(|(of, _)| *of == step)
        .map(|(_, beginning)| beginning.trim())
        .collect();
    let is_expected = |skip: &str| {
        let skip = without_modules(skip);
        expected.iter().any(|beginning| skip.starts_with(beginning))
    };
    let skips = skips.iter().map(String::as_str);
    skips.filter(|skip| !is_expected(skip)).collect()
}

fn without_modules(skip: &str) -> &str {
    let path = skip.split(": ").next().unwrap_or_default();
    path.rfind("::").map_or(skip, |at| &skip[at + 2..])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{fresh, paths};

    #[test]
    fn steps_are_read() {
        for long in [false, true] {
            let steps = all(long);
            let names: BTreeSet<_> = steps.iter().map(|step| step.name).collect();
            assert_eq!(names.len(), steps.len(), "one name each");
            assert!(steps.iter().all(|step| !step.script.is_empty()));
            assert_eq!(names.contains("soak"), long);
            let miri = steps.iter().find(|step| step.name == "miri").unwrap();
            assert_eq!(miri.is_long, long);
        }
    }

    #[test]
    fn a_skip_is_expected_only_in_its_own_step() {
        let skips = [
            "bug-close: no".to_owned(),
            "c::matmuls_and_sharing_by_libdrm: it needs libdrm".to_owned(),
            "c::bug::matmuls: none".to_owned(),
        ];
        assert_eq!(unexpected_skips("fresh", &skips), [&skips[2]]);
        assert!(
            unexpected_skips("miri", &skips).is_empty(),
            "whatever they are"
        );
        assert_eq!(unexpected_skips("vm", &skips), skips.each_ref());
    }

    /// CI runs the commands that README gives users.
    #[test]
    fn the_commands_of_the_readme_are_run() {
        let readme = paths::text(&paths::root().join("README.md")).unwrap();
        let runs = [
            all(false).into_iter().map(|step| step.script).collect(),
            fresh::COMMANDS.join("\n"),
        ];
        let told = [
            "cargo run --release -p npu-probe",
            "cargo test",
            "cargo xtask demo",
            "cargo xtask llama",
        ];
        for told in told {
            assert!(readme.contains(told), "README no longer contains `{told}`");
            let run = runs
                .iter()
                .flat_map(|runs: &String| runs.lines())
                .any(|run| run.starts_with(told));
            assert!(run, "CI no longer runs `{told}`");
        }
        let install = format!("apt-get install {}\n", fresh::PACKAGES.join(" "));
        // In the order in which one types them.
        let typed = [
            "apt-get update\n",
            &install,
            "https://sh.rustup.rs | sh",
            "git clone ",
            fresh::COMMANDS[0],
        ];
        let places = typed.map(|command| readme.find(command));
        assert!(
            places.iter().all(Option::is_some) && places.is_sorted(),
            "README has {typed:?} at {places:?}"
        );
    }
}
