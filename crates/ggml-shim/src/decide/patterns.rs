// SPDX-License-Identifier: MIT OR Apache-2.0
//! Selects the tensors for the NPU by name: `GGML_ROCKET_TENSORS`.
//!
//! It is a list of patterns, separated by commas. A pattern with a leading `!` excludes. The last
//! pattern that matches a name decides about it. A name that no pattern matches is included if the
//! list only excludes, otherwise not.
//!
//! In a pattern `*` stands for any characters or none, `?` for one, and `[a-f7]` for one of those
//! in the brackets (`[!a-f7]`: for one that is not). Every other character stands for itself. A
//! pattern matches whole names.

/// The patterns of `GGML_ROCKET_TENSORS`, in their order, each with whether it includes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Patterns(Vec<(bool, glob::Pattern)>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatternError {
    /// Nothing between two commas, or behind a `!`.
    #[error("a pattern is empty")]
    Empty,
    /// `[` without `]`, or nothing in between.
    #[error("a bracket in {0:?} is not closed, or has nothing in it")]
    Bracket(String),
}

impl Patterns {
    pub(crate) fn parse(list: &str) -> Result<Self, PatternError> {
        let patterns = list.split(',').map(|text| pattern(text.trim()));
        patterns.collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn include(&self, name: &str) -> bool {
        let decides = self
            .0
            .iter()
            .rev()
            .find(|(_, pattern)| pattern.matches(name));
        match decides {
            Some((includes, _)) => *includes,
            None => !self.0.iter().any(|(includes, _)| *includes),
        }
    }
}

fn pattern(text: &str) -> Result<(bool, glob::Pattern), PatternError> {
    let pattern = text.strip_prefix('!').unwrap_or(text);
    if pattern.is_empty() {
        return Err(PatternError::Empty);
    }
    // In `glob` two stars stand for directories.
    let mut single = pattern.to_owned();
    while single.contains("**") {
        single = single.replace("**", "*");
    }
    let parsed = glob::Pattern::new(&single).map_err(|_| PatternError::Bracket(pattern.to_owned()));
    Ok((pattern.len() == text.len(), parsed?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn include(list: &str, name: &str) -> bool {
        Patterns::parse(list).unwrap().include(name)
    }

    #[test]
    fn the_last_match_decides_and_the_rest_follows_from_the_list() {
        let list = "blk.[0-9].*,!*ffn_down*";
        for (name, included) in [
            ("blk.3.attn_q.weight", true),
            ("blk.3.ffn_down.weight", false),
            ("blk.13.attn_q.weight", false),
            ("output.weight", false),
        ] {
            assert_eq!(include(list, name), included, "{name}");
        }
        assert!(include("!output*", "blk.0.attn_q.weight"));
        assert!(!include("!output*", "output.weight"));
        assert!(include("!*ffn*, blk.0.*", "blk.0.ffn_up.weight"));
        assert!(Patterns::default().include("anything"));
    }

    #[test]
    fn each_sign_means_what_it_says() {
        for (pattern, name, matches) in [
            ("*", "", true),
            ("a**c", "abbc", true),
            ("*", "a/.b", true),
            ("a*b*c", "aXbXbc", true),
            ("a*b*c", "ab", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[ab7-9]x", "8x", true),
            ("[ab7-9]x", "6x", false),
            ("[!0-4]", "7", true),
            ("[!0-4]", "3", false),
            ("[a-]", "-", true),
            ("a.c", "abc", false),
            ("abc", "abcd", false),
        ] {
            assert_eq!(include(pattern, name), matches, "{pattern} {name}");
        }
    }

    #[test]
    fn unreadable_patterns_are_errors() {
        assert_eq!(Patterns::parse("a,,b"), Err(PatternError::Empty));
        assert_eq!(Patterns::parse("!"), Err(PatternError::Empty));
        for list in ["blk.[0-9.*", "blk.[]"] {
            let error = Patterns::parse(list).unwrap_err();
            assert!(error.to_string().contains(list), "{error}");
        }
    }
}
