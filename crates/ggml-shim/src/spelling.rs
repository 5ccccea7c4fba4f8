// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds environment variables that look like ours and are not: otherwise a misspelt setting would
//! be ignored without notice.

use std::ffi::OsString;

/// Prefix of all our variables.
pub(crate) const PREFIX: &str = "GGML_ROCKET_";

/// Returns a complaint for each of the names `set` that begins like ours and is not in `known`, in
/// the order of the names.
pub(crate) fn complaints(
    set: impl IntoIterator<Item = OsString>,
    known: &[&'static str],
) -> Vec<String> {
    let mut strange: Vec<String> = set
        .into_iter()
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| is_like_ours(name) && !known.contains(&&**name))
        .collect();
    strange.sort_unstable();
    strange
        .iter()
        .map(|name| {
            let upper = name.to_ascii_uppercase();
            let nearest = (known.iter()).min_by_key(|known| strsim::levenshtein(&upper, known));
            let nearest =
                nearest.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            format!("unknown variable {name:?} is ignored{nearest}")
        })
        .collect()
}

fn is_like_ours(name: &str) -> bool {
    let beginning = name.as_bytes().get(..PREFIX.len());
    beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(PREFIX.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    const KNOWN: [&str; 3] = [
        "GGML_ROCKET_MEM",
        "GGML_ROCKET_MIN_M",
        "GGML_ROCKET_PRECISION",
    ];

    fn complaints_about(set: &[&str]) -> Vec<String> {
        complaints(set.iter().map(OsString::from), &KNOWN)
    }

    #[test]
    fn a_misspelt_name_is_told_with_the_nearest_one() {
        for (wrong, meant) in [
            ("GGML_ROCKET_PRECISON", "GGML_ROCKET_PRECISION"),
            ("GGML_ROCKET_precision", "GGML_ROCKET_PRECISION"),
            ("ggml_rocket_mem", "GGML_ROCKET_MEM"),
            ("GGML_ROCKET_MINM", "GGML_ROCKET_MIN_M"),
            ("GGML_ROCKET_", "GGML_ROCKET_MEM"),
        ] {
            let said = complaints_about(&[wrong]);
            let [line] = &said[..] else {
                panic!("{said:?}");
            };
            assert!(line.contains(&format!("{wrong:?}")), "{line}");
            assert!(line.ends_with(&format!("did you mean {meant}?")), "{line}");
        }
    }

    #[test]
    fn others_and_good_names_are_nobodys_business() {
        let fine = [
            "GGML_ROCKET_MEM",
            "GGML_BACKEND_PATH",
            "GGML_ROCKE",
            "",
            "PATH",
        ];
        assert!(complaints_about(&fine).is_empty());
    }

    #[test]
    fn each_is_told_once_in_one_line_whatever_bytes_it_has() {
        let odd = OsString::from_vec(b"GGML_ROCKET_\xff\n\x1b".to_vec());
        let said = complaints([odd, "GGML_ROCKET_A".into()], &KNOWN);
        assert_eq!(said.len(), 2);
        assert!(said[0].contains("ROCKET_A\""), "{said:?}");
        assert!(!said[1].contains(['\n', '\u{1b}']), "{said:?}");
    }
}
