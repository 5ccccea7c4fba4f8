// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian packages in a private directory: nothing is installed on the
//! machine, and any suite and architecture can be read through the package
//! sources that the machine itself is set up with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::arch::Arch;
use crate::process;
use crate::report::external;

/// Where Debian's own package of archive keys puts them.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Age from which packages are fetched again.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);

/// Time that the dynamic loader has to list libraries.
const LIST_LIMIT: Duration = Duration::from_secs(60);

/// Packages with all that they depend on, unpacked in a directory of their own.
#[derive(Debug)]
pub(crate) struct Sysroot {
    root: PathBuf,
    arch: Arch,
}

impl Sysroot {
    /// Fetches and unpacks `packages` of `suite` below `directory`, unless just
    /// these are there and less than a day old, or if `refresh`.
    pub(crate) fn prepare(
        directory: &Path,
        packages: &[&str],
        suite: &str,
        arch: Arch,
        refresh: bool,
    ) -> Result<Self> {
        let root = directory.join("root");
        let stamp = directory.join("complete");
        let wanted = packages.join(" ");
        let other = fs::read_to_string(&stamp).is_ok_and(|had| had != wanted);
        if refresh || other || !is_fresh(&stamp) {
            println!(
                "fetching {} from Debian {suite} ({arch})",
                packages.join(", ")
            );
            match (
                fetch(directory, &root, packages, suite, arch),
                stamp.exists(),
            ) {
                (Ok(()), _) => fs::write(&stamp, wanted).context("writing the stamp")?,
                (Err(error), true) => {
                    println!("using the packages of an earlier day, because: {error:#}");
                }
                (Err(error), false) => {
                    return Err(external(&error)).context("fetching the stock binaries");
                }
            }
        }
        Ok(Self { root, arch })
    }

    /// Root directory of the unpacked packages.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The architecture of what is in it.
    pub(crate) fn arch(&self) -> Arch {
        self.arch
    }

    /// The directory with the packages' shared libraries.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.root.join(self.place_of_libraries())
    }

    /// Where libraries are on a machine with these packages, below `/`.
    pub(crate) fn place_of_libraries(&self) -> String {
        format!("usr/lib/{}", self.arch.triplet())
    }

    /// The libraries that `file` is loaded with, as the packages' dynamic loader
    /// finds them, first in `directories`.
    pub(crate) fn needed(&self, file: &Path, directories: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let path = std::env::join_paths(directories.iter().chain([&self.libraries()]))?;
        let mut command = self.arch.command(&self.loader()?);
        command.arg("--list").arg("--library-path").arg(path);
        command.arg(file);
        let output = process::run(command, LIST_LIMIT)?;
        found(&output.checked("the dynamic loader")?.text())
            .with_context(|| format!("asking what {} is loaded with", file.display()))
    }

    /// The packages' dynamic loader.
    pub(crate) fn loader(&self) -> Result<PathBuf> {
        let name = self.arch.loader();
        [
            self.libraries().join(name),
            self.root.join("usr/lib64").join(name),
            self.root.join("usr/lib").join(name),
        ]
        .into_iter()
        .find(|path| path.exists())
        .with_context(|| format!("the packages contain no {name}"))
        .map_err(|error| external(&error))
    }
}

/// The paths in a dynamic loader's list.
fn found(list: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in list.lines() {
        let Some((name, path)) = line.split_once(" => ") else {
            continue;
        };
        match path.split(" (").next() {
            Some(path) if path.starts_with('/') => libraries.push(PathBuf::from(path)),
            _ => bail!("the packages lack {}", name.trim()),
        }
    }
    Ok(libraries)
}

pub(crate) fn is_fresh(stamp: &Path) -> bool {
    let age = fs::metadata(stamp)
        .and_then(|metadata| metadata.modified())
        .map(|time| time.elapsed().unwrap_or_default());
    age.is_ok_and(|age| age < FRESH)
}

/// Downloads the packages and unpacks them into an empty `root`.
fn fetch(directory: &Path, root: &Path, packages: &[&str], suite: &str, arch: Arch) -> Result<()> {
    let apt = PrivateApt::new(&directory.join("apt"), &[suite], arch.debian())?;
    let packages = apt.download(packages, true)?;
    let fresh = directory.join("root.new");
    if fresh.exists() {
        fs::remove_dir_all(&fresh).context("removing an unfinished directory")?;
    }
    fs::create_dir_all(&fresh).context("making the directory")?;
    for package in &packages {
        unpack(package, &fresh)?;
    }
    if root.exists() {
        fs::remove_dir_all(root).context("removing the old directory")?;
    }
    fs::rename(&fresh, root).context("moving the new directory in place")
}

/// An apt with its own lists, cache and (empty) state.
pub(crate) struct PrivateApt {
    directory: PathBuf,
    options: Vec<String>,
}

impl PrivateApt {
    /// Sets one up below `directory` for `suites` (say `sid`) and Debian's name
    /// of an architecture (`amd64`, `arm64`), and reads the package lists.
    pub(crate) fn new(directory: &Path, suites: &[&str], architecture: &str) -> Result<Self> {
        for part in ["lists/partial", "archives/partial", "etc"] {
            let path = directory.join(part);
            fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        }
        let sources = directory.join("etc/sources.list");
        let mirror = mirror()?;
        let line = |suite: &&str| {
            format!("deb [arch={architecture} signed-by={KEYRING}] {mirror} {suite} main\n")
        };
        fs::write(&sources, suites.iter().map(line).collect::<String>())?;
        // An empty status makes apt fetch the whole closure, the C library
        // included: the binaries must not depend on what is installed here.
        let status = directory.join("status");
        fs::write(&status, "")?;
        let set = |name: &str, value: &dyn std::fmt::Display| format!("{name}={value}");
        let options = [
            set("Dir::Etc::sourcelist", &sources.display()),
            set("Dir::Etc::sourceparts", &"-"),
            set("Dir::State::lists", &directory.join("lists").display()),
            set("Dir::State::status", &status.display()),
            set("Dir::Cache", &directory.display()),
            set("APT::Architecture", &architecture),
            set("APT::Architectures::", &architecture),
            set("APT::Install-Recommends", &"0"),
            set("APT::Sandbox::User", &"root"),
            set("Acquire::Languages", &"none"),
            set("Debug::NoLocking", &"1"),
        ]
        .into_iter()
        .flat_map(|option| ["-o".to_owned(), option])
        .collect();
        let apt = Self {
            directory: directory.to_owned(),
            options,
        };
        apt.run("apt-get", &["--quiet=2", "update"])?;
        Ok(apt)
    }

    /// Downloads `packages`, with everything they depend on if `closure`;
    /// returns the files.
    pub(crate) fn download(&self, packages: &[&str], closure: bool) -> Result<Vec<PathBuf>> {
        let archives = self.directory.join("archives");
        if closure {
            let mut arguments = vec!["--yes", "--quiet=2", "--download-only", "install"];
            arguments.extend(packages);
            self.run("apt-get", &arguments)?;
        } else {
            let mut arguments = vec!["--quiet=2", "download"];
            arguments.extend(packages);
            self.run_in("apt-get", &arguments, &archives)?;
        }
        let mut files = Vec::new();
        for entry in fs::read_dir(&archives)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// The packages whose names start with `prefix`, each with a version that
    /// is offered.
    pub(crate) fn offered(&self, prefix: &str) -> Result<Vec<(String, String)>> {
        let names = self.run("apt-cache", &["pkgnames", prefix])?;
        let mut arguments = vec!["madison"];
        arguments.extend(names.lines());
        let listing = self.run("apt-cache", &arguments)?;
        let pair = |line: &str| {
            let mut columns = line.split('|').map(|column| column.trim().to_owned());
            columns.next().zip(columns.next())
        };
        Ok(listing.lines().filter_map(pair).collect())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.run_in(program, arguments, &self.directory)
    }

    fn run_in(&self, program: &str, arguments: &[&str], directory: &Path) -> Result<String> {
        let output = Command::new(program)
            .args(&self.options)
            .args(arguments)
            .current_dir(directory)
            .output()
            .with_context(|| format!("running {program}"))?;
        if !output.status.success() {
            bail!(
                "{program} {} failed: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Unpacks one package below `root`.
pub(crate) fn unpack(package: &Path, root: &Path) -> Result<()> {
    let status = Command::new("dpkg-deb")
        .arg("--extract")
        .arg(package)
        .arg(root)
        .status()
        .context("running dpkg-deb")?;
    if !status.success() {
        bail!("dpkg-deb could not unpack {}: {status}", package.display());
    }
    Ok(())
}

/// The line of package sources for `suite`, from the mirror of this machine.
pub(crate) fn source(suite: &str) -> Result<String> {
    let mirror = mirror()?;
    Ok(format!("deb [signed-by={KEYRING}] {mirror} {suite} main"))
}

/// The machine's own Debian mirror, as its apt is set up.
fn mirror() -> Result<String> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI)"])
        .output()
        .context("asking apt for its mirrors (is this a Debian machine?)")?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| line.trim_end_matches('/'))
        .find(|line| line.ends_with("/debian"))
        .map(str::to_owned)
        .context("apt knows no Debian mirror; run `apt-get update` and try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_or_named() {
        let list =
            "\tlinux-vdso.so.1 (0x1)\n\tlibm.so.6 => /a b/libm.so.6 (0x2)\n\t/lib/ld.so (0x3)\n";
        assert_eq!(found(list).unwrap(), [PathBuf::from("/a b/libm.so.6")]);
        let error = found("\tlibx.so => not found\n").unwrap_err();
        assert_eq!(error.to_string(), "the packages lack libx.so");
    }
}
