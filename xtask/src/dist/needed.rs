// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shared libraries that programs need, as dependencies of a package.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::process;

/// The C library of Debian 12, the oldest system that packages are for.
const OLDEST_GLIBC: Version = (2, 36);
/// Time that readelf may take.
const LIMIT: Duration = Duration::from_secs(60);

type Version = (u32, u32);

/// `Depends` of a package with these programs and libraries.
///
/// # Errors
/// If they need a newer C library than Debian 12's, or a library whose package is not
/// known.
pub(super) fn depends(files: &[PathBuf]) -> Result<String> {
    let mut glibc = Version::default();
    let mut others = BTreeSet::new();
    for file in files {
        let text = readelf(file)?;
        let needed = Needed::parse(&text).with_context(|| file.display().to_string())?;
        glibc = glibc.max(needed.glibc);
        others.extend(needed.others);
    }
    ensure!(
        glibc <= OLDEST_GLIBC,
        "{} {}: needs glibc {}.{}, and Debian 12 has {}.{}",
        "packages are for Debian 12 and later;",
        files.len(),
        glibc.0,
        glibc.1,
        OLDEST_GLIBC.0,
        OLDEST_GLIBC.1
    );
    let glibc = format!("libc6 (>= {}.{})", glibc.0, glibc.1);
    let all: Vec<_> = std::iter::once(glibc)
        .chain(others.into_iter().map(str::to_owned))
        .collect();
    Ok(all.join(", "))
}

fn readelf(file: &Path) -> Result<String> {
    let mut command = Command::new("readelf");
    command
        .args(["--wide", "--dynamic", "--version-info"])
        .arg(file);
    command.env("LC_ALL", "C");
    Ok(process::run(command, LIMIT)?.checked("readelf")?.text())
}

/// What one file needs.
#[derive(Debug, PartialEq, Eq)]
struct Needed {
    glibc: Version,
    others: BTreeSet<&'static str>,
}

impl Needed {
    /// Reads readelf's lines of needed libraries and of versions of symbols.
    fn parse(text: &str) -> Result<Self> {
        let mut needed = Self {
            glibc: Version::default(),
            others: BTreeSet::new(),
        };
        for line in text.lines() {
            if let Some((_, name)) = line.split_once("Shared library: [") {
                match name.trim_end_matches(']') {
                    "libc.so.6" | "libm.so.6" => {}
                    name if name.starts_with("ld-linux-") => {}
                    "libgcc_s.so.1" => {
                        needed.others.insert("libgcc-s1 (>= 4.2)");
                    }
                    name => bail!("needs {name}, of which package?"),
                }
            }
            let Some((_, version)) = line.split_once("Name: GLIBC_") else {
                continue;
            };
            let version = version.split_whitespace().next().unwrap_or_default();
            let mut parts = version.split('.').map(str::parse);
            match (parts.next(), parts.next()) {
                (Some(Ok(major)), Some(Ok(minor))) => {
                    needed.glibc = needed.glibc.max((major, minor));
                }
                _ => bail!("the version {version} of glibc makes no sense"),
            }
        }
        Ok(needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_newest_version_are_read() {
        let text = "\
 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
  0x0010:   Name: GLIBC_2.9  Flags: none  Version: 7
  0x0010:   Name: GLIBC_2.34  Flags: none  Version: 8
  0x0020:   Name: GLIBC_2.2.5  Flags: none  Version: 9
  0x0030:   Name: GCC_3.0  Flags: none  Version: 2
";
        let needed = Needed::parse(text).unwrap();
        assert_eq!(needed.glibc, (2, 34));
        assert_eq!(needed.others, BTreeSet::from(["libgcc-s1 (>= 4.2)"]));
        let unknown = " 1 (NEEDED)  Shared library: [libstdc++.so.6]\n";
        assert!(Needed::parse(unknown).is_err());
    }
}
