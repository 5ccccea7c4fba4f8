// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian packages in a private directory. Nothing is installed on the machine. Any suite and
//! architecture is available from the machine's own package sources.

use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::arch::Arch;
use crate::process::{self, external, run_checked};

/// Path of the archive keys in Debian's own package.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Age after which packages are fetched again.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);

/// Time limit of a small program, and of one that downloads.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
pub(crate) const FETCH_LIMIT: Duration = Duration::from_secs(60 * 60);

/// Packages with all their dependencies, unpacked in a separate directory.
#[derive(Debug)]
pub(crate) struct Sysroot {
    root: PathBuf,
    arch: Arch,
}

impl Sysroot {
    /// Fetches and unpacks `packages` of `suite` below `directory`, unless the same packages are
    /// there and less than a day old.
    pub(crate) fn prepare(
        directory: &Path,
        packages: &[&str],
        suite: &str,
        arch: Arch,
    ) -> Result<Self> {
        let root = directory.join("root");
        let stamp = directory.join("complete");
        let wanted = packages.join(" ");
        let other = fs::read_to_string(&stamp).is_ok_and(|had| had != wanted);
        if other || !is_fresh(&stamp) {
            println!(
                "fetching {} from Debian {suite} ({arch})",
                packages.join(", ")
            );
            match (fetch(directory, packages, suite, arch), stamp.exists()) {
                (Ok(()), _) => fs::write(&stamp, wanted).context("writing the stamp")?,
                (Err(error), true) => {
                    println!(
                        "using the packages of an earlier day, since fetching failed: {error:#}"
                    );
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

    /// The directory with the packages' shared libraries.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.root.join("usr/lib").join(self.arch.triplet())
    }

    /// The packages' dynamic loader.
    pub(crate) fn loader(&self) -> Result<PathBuf> {
        let name = self.arch.loader();
        let others = ["usr/lib64", "usr/lib"].map(|place| self.root.join(place));
        iter::once(self.libraries())
            .chain(others)
            .map(|place| place.join(name))
            .find(|path| path.exists())
            .with_context(|| format!("the packages contain no {name}"))
            .map_err(|error| external(&error))
    }
}

/// Whether a file is less than a day old.
pub(crate) fn is_fresh(stamp: &Path) -> bool {
    let time = fs::metadata(stamp).and_then(|metadata| metadata.modified());
    time.is_ok_and(|time| time.elapsed().unwrap_or_default() < FRESH)
}

/// Downloads the packages and unpacks them into an empty root.
fn fetch(directory: &Path, packages: &[&str], suite: &str, arch: Arch) -> Result<()> {
    let apt = PrivateApt::new(&directory.join("apt"), &[suite], arch.debian())?;
    let packages = apt.download(packages, true)?;
    let [root, fresh] = ["root", "root.new"].map(|name| directory.join(name));
    let remove = |path: &Path| {
        if path.exists() {
            fs::remove_dir_all(path).context("removing an old directory")
        } else {
            Ok(())
        }
    };
    remove(&fresh)?;
    packages
        .iter()
        .try_for_each(|package| unpack(package, &fresh))?;
    remove(&root)?;
    fs::rename(&fresh, root).context("moving the new directory in place")
}

/// An apt with its own lists, cache and (empty) state.
pub(crate) struct PrivateApt {
    directory: PathBuf,
    options: Vec<String>,
}

impl PrivateApt {
    /// Sets up apt below `directory` for `suites` (such as `sid`) and an architecture by its Debian
    /// name (`amd64`, `arm64`), and reads the package lists.
    pub(crate) fn new(directory: &Path, suites: &[&str], architecture: &str) -> Result<Self> {
        for part in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(directory.join(part)).context("making a directory for apt")?;
        }
        let at = |name: &str| directory.join(name).display().to_string();
        let lines = suites
            .iter()
            .map(|suite| source(suite, &format!("arch={architecture} ")));
        let lines = lines.collect::<Result<Vec<_>>>()?.join("\n") + "\n";
        fs::write(at("sources.list"), lines).context("writing package sources")?;
        // With an empty status apt fetches all dependencies, including the C library. So the
        // binaries do not depend on what is installed here.
        fs::write(at("status"), "").context("writing apt's state")?;
        let options = [
            ("Dir::Etc::sourcelist", &at("sources.list")[..]),
            ("Dir::Etc::sourceparts", "-"),
            ("Dir::State::lists", &at("lists")),
            ("Dir::State::status", &at("status")),
            ("Dir::Cache", &at("")),
            ("APT::Architecture", architecture),
            ("APT::Architectures::", architecture),
            ("APT::Install-Recommends", "0"),
            ("APT::Sandbox::User", "root"),
            ("Acquire::Languages", "none"),
            ("Debug::NoLocking", "1"),
        ];
        let apt = Self {
            directory: directory.to_owned(),
            options: options
                .map(|(name, value)| format!("--option={name}={value}"))
                .into(),
        };
        apt.run("apt-get", &["--quiet=2", "update"])?;
        Ok(apt)
    }

    /// Downloads `packages`, with all dependencies if `closure`; returns the files.
    pub(crate) fn download(&self, packages: &[&str], closure: bool) -> Result<Vec<PathBuf>> {
        let how: &[&str] = if closure {
            &["--quiet=2", "--yes", "--download-only", "install"]
        } else {
            &["--quiet=2", "download"]
        };
        self.run("apt-get", &[how, packages].concat())?;
        let archives = self.directory.join("archives");
        let mut files = crate::paths::files(&archives, &["deb"])?;
        // Incomplete downloads are in a subdirectory.
        files.retain(|file| file.parent() == Some(&archives));
        Ok(files)
    }

    /// The packages whose names start with `prefix`, each with an offered version.
    pub(crate) fn offered(&self, prefix: &str) -> Result<Vec<(String, String)>> {
        let names = self.run("apt-cache", &["pkgnames", prefix])?;
        let arguments: Vec<&str> = ["madison"].into_iter().chain(names.lines()).collect();
        let listing = self.run("apt-cache", &arguments)?;
        let pair = |line: &str| {
            let mut columns = line.split('|').map(|column| column.trim().to_owned());
            columns.next().zip(columns.next())
        };
        Ok(listing.lines().filter_map(pair).collect())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command
            .args(&self.options)
            .args(arguments)
            .current_dir(self.directory.join("archives"));
        let what = format!("{program} {}", arguments.join(" "));
        Ok(process::run(&command, FETCH_LIMIT)?.checked(&what)?.stdout)
    }
}

/// Unpacks one package below `root`.
pub(crate) fn unpack(package: &Path, root: &Path) -> Result<()> {
    fs::create_dir_all(root).context("making a directory")?;
    run_checked(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(package)
            .arg(root),
    )
    .with_context(|| format!("unpacking {}", package.display()))
}

/// The line of package sources for `suite`, from the Debian mirror in this machine's apt settings.
/// `options` are those of apt's source lines.
pub(crate) fn source(suite: &str, options: &str) -> Result<String> {
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", "$(REPO_URI)"]);
    let uris = process::run(&apt, LIMIT)
        .context("asking apt for its mirrors")?
        .stdout;
    let mirror = uris
        .lines()
        .map(|line| line.trim_end_matches('/'))
        .find(|line| line.ends_with("/debian"))
        .context("apt knows no Debian mirror; run `apt-get update` and try again")?;
    Ok(format!(
        "deb [{options}signed-by={KEYRING}] {mirror} {suite} main"
    ))
}
