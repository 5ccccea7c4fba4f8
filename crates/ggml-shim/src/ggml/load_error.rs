// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why this library does not serve the program that loaded it, and the version of ggml.

use rocket_uapi::DiscoverError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error(
        "no ggml found in this process: no loaded file exports its functions. The program, or the \
         library of it that contains ggml, must be built with -DBUILD_SHARED_LIBS=ON or export \
         ggml's functions"
    )]
    NoGgml,
    #[error(
        "this process has {0} copies of ggml, and this backend cannot determine which one \
         loads it; use a program that shares one ggml library"
    )]
    SeveralGgml(usize),
    #[error(
        "ggml {0} is older than 0.9.1, the first version that this backend supports. Use a \
         llama.cpp of October 2025 or later"
    )]
    TooOld(String),
    #[error(
        "ggml {0} has an unknown backend interface: it does not export the functions of \
         that version. Use an unmodified llama.cpp, or a newer version of this backend"
    )]
    UnknownLayout(String),
    /// This function of ggml does not do what the layout says.
    #[error(
        "ggml {0} has an unknown backend interface: {1} does not call \
         or read what this backend expects. Use an earlier llama.cpp, or a newer version of this \
         backend"
    )]
    OtherTables(String, String),
    #[error(
        "ggml {0} lacks a function that this backend calls. Use an unmodified llama.cpp, or \
         a newer version of this backend"
    )]
    Incomplete(String),
    #[error(
        "ggml {0} lacks the operation {1}, which this backend needs. Use an unmodified \
         llama.cpp, or a newer version of this backend"
    )]
    NoSuchOp(String, &'static str),
    /// No device was named, and the kernel has none.
    #[error("{0}. (GGML_ROCKET_DEVICE=model computes on the software model, which is for testing)")]
    NoNpu(DiscoverError),
    /// The named device does not exist, or could not be set up.
    #[error("{0}")]
    Device(String),
}

/// Major, minor and patch of a version as `ggml_version` says it; `None` if it has another form.
pub(crate) fn version_number(version: &str) -> Option<(u32, u32, u32)> {
    // A patch level may have a suffix such as `-dev`, or be missing.
    let digits = |part: &str| {
        let end = part.find(|c: char| !c.is_ascii_digit());
        part[..end.unwrap_or(part.len())].parse().ok()
    };
    let mut parts = version.split('.').map(digits);
    let (major, minor) = (parts.next()??, parts.next()??);
    Some((major, minor, parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_where_there_are_some() {
        for (text, number) in [
            ("0.9.4", Some((0, 9, 4))),
            ("0.27.0-dev", Some((0, 27, 0))),
            ("1.2", Some((1, 2, 0))),
            ("1.2.x", Some((1, 2, 0))),
            ("of unknown version", None),
            ("", None),
            ("7", None),
            ("99999999999.1.1", None),
        ] {
            assert_eq!(version_number(text), number, "{text}");
        }
    }
}
