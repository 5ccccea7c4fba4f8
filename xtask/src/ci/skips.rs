// SPDX-License-Identifier: MIT OR Apache-2.0
//! The skips that are known and meant: data, with a reason each.

use anyhow::{Result, bail};

/// One line a skip: `step: beginning of the SKIP line`, comments after `#`.
const LIST: &str = include_str!("expected-skips.txt");

/// Which skips are expected in which step.
pub(crate) struct ExpectedSkips {
    entries: Vec<(String, String)>,
}

impl ExpectedSkips {
    /// Reads the list that is compiled in.
    pub(crate) fn load() -> Result<Self> {
        Self::parse(LIST)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut entries = Vec::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let Some((step, beginning)) = line.split_once(':') else {
                bail!("`{line}` is not of the form `step: beginning of the line`");
            };
            entries.push((step.trim().to_owned(), beginning.trim().to_owned()));
        }
        Ok(Self { entries })
    }

    /// The first of `skips` that no entry of `step` matches.
    pub(crate) fn first_unexpected<'a>(&self, step: &str, skips: &'a [String]) -> Option<&'a str> {
        skips.iter().map(String::as_str).find(|skip| {
            !self
                .entries
                .iter()
                .any(|(of, beginning)| of == step && skip.starts_with(beginning.as_str()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_in_the_repository_parses() {
        ExpectedSkips::load().unwrap();
    }

    #[test]
    fn a_skip_is_expected_only_in_its_own_step() {
        let expected = ExpectedSkips::parse("fresh: prep_busy # needs a board\n").unwrap();
        let skips = vec!["prep_busy: no board".to_owned()];
        assert_eq!(expected.first_unexpected("fresh", &skips), None);
        assert_eq!(
            expected.first_unexpected("miri", &skips),
            Some("prep_busy: no board")
        );
    }

    #[test]
    fn a_line_without_a_step_is_refused() {
        assert!(ExpectedSkips::parse("prep_busy").is_err());
    }
}
