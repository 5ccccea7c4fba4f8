// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which tensors the user wants on the NPU, by name: `GGML_ROCKET_TENSORS`.
//!
//! A list of patterns, separated by commas; one with a leading `!` excludes.
//! The last pattern that matches a name decides about it. A name that none
//! matches is included if the list only excludes, else not.
//!
//! In a pattern `*` stands for any characters, none included, `?` for one, and
//! `[a-f7]` for one of those in the brackets (`[!a-f7]`: for one that is not);
//! everything else stands for itself. A pattern matches whole names.

/// The patterns of `GGML_ROCKET_TENSORS`, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Patterns(Vec<Pattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    includes: bool,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// `*`
    Any,
    /// One character: of these ranges, or (if `except`) of none of them.
    One {
        ranges: Vec<(char, char)>,
        except: bool,
    },
}

/// A list that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatternError {
    /// Nothing between two commas, or behind a `!`.
    #[error("a pattern is empty")]
    Empty,
    /// `[` without `]`.
    #[error("a bracket in {0:?} is not closed")]
    Open(String),
}

impl Patterns {
    /// Reads a list.
    pub(crate) fn parse(list: &str) -> Result<Self, PatternError> {
        list.split(',')
            .map(|text| Pattern::parse(text.trim()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether the tensor of this name is wanted.
    pub(crate) fn include(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let decides = self.0.iter().rev().find(|pattern| pattern.matches(&name));
        match decides {
            Some(pattern) => pattern.includes,
            None => !self.0.iter().any(|pattern| pattern.includes),
        }
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, PatternError> {
        let (includes, pattern) = match text.strip_prefix('!') {
            Some(rest) => (false, rest),
            None => (true, text),
        };
        if pattern.is_empty() {
            return Err(PatternError::Empty);
        }
        let mut parts = Vec::new();
        let mut rest = pattern.chars();
        while let Some(letter) = rest.next() {
            parts.push(match letter {
                '*' => Part::Any,
                '?' => Part::One {
                    ranges: Vec::new(),
                    except: true,
                },
                '[' => {
                    let (inside, behind) = rest
                        .as_str()
                        .split_once(']')
                        .ok_or_else(|| PatternError::Open(pattern.to_owned()))?;
                    rest = behind.chars();
                    Part::set(inside)
                }
                _ => Part::One {
                    ranges: vec![(letter, letter)],
                    except: false,
                },
            });
        }
        Ok(Self { includes, parts })
    }

    fn matches(&self, name: &[char]) -> bool {
        // Which beginnings of the name the parts so far match.
        let mut reached = vec![false; name.len() + 1];
        reached[0] = true;
        for part in &self.parts {
            match part {
                Part::Any => {
                    let mut before = false;
                    for reached in &mut reached {
                        before |= *reached;
                        *reached = before;
                    }
                }
                Part::One { .. } => {
                    for index in (0..name.len()).rev() {
                        reached[index + 1] = reached[index] && part.holds(name[index]);
                    }
                    reached[0] = false;
                }
            }
        }
        reached[name.len()]
    }
}

impl Part {
    /// The characters that `inside`, the text between brackets, stands for.
    fn set(inside: &str) -> Self {
        let (except, inside) = match inside.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, inside),
        };
        let letters: Vec<char> = inside.chars().collect();
        let mut ranges = Vec::new();
        let mut rest = &letters[..];
        loop {
            rest = match rest {
                [first, '-', last, rest @ ..] => {
                    ranges.push((*first, *last));
                    rest
                }
                [letter, rest @ ..] => {
                    ranges.push((*letter, *letter));
                    rest
                }
                [] => return Self::One { ranges, except },
            };
        }
    }

    fn holds(&self, letter: char) -> bool {
        match self {
            Self::Any => true,
            Self::One { ranges, except } => {
                let within = |(first, last): &(char, char)| (*first..=*last).contains(&letter);
                ranges.iter().any(within) != *except
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
            ("a*b*c", "abc", true),
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
    fn what_cannot_be_read_is_an_error() {
        assert_eq!(Patterns::parse("a,,b"), Err(PatternError::Empty));
        assert_eq!(Patterns::parse("!"), Err(PatternError::Empty));
        let open = Patterns::parse("blk.[0-9.*").unwrap_err();
        assert!(open.to_string().contains("blk.[0-9.*"));
    }

    /// The definition, without the table of what was reached.
    fn simple(parts: &[Part], name: &[char]) -> bool {
        match (parts, name) {
            ([], name) => name.is_empty(),
            ([Part::Any, rest @ ..], name) => {
                (0..=name.len()).any(|skipped| simple(rest, &name[skipped..]))
            }
            ([part, rest @ ..], [letter, name @ ..]) => part.holds(*letter) && simple(rest, name),
            ([_, ..], []) => false,
        }
    }

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn matching_equals_the_definition(pattern in "[ab*?]{1,8}", name in "[abc]{0,8}") {
            let pattern = Pattern::parse(&pattern).unwrap();
            let name: Vec<char> = name.chars().collect();
            prop_assert_eq!(pattern.matches(&name), simple(&pattern.parts, &name));
        }
    }
}
