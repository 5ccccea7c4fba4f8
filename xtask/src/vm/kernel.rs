// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels for the guest: Debian's source packages, cross-compiled with the
//! few drivers that a guest needs, and kept.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use twox_hash::XxHash3_128;

use crate::arch::{Arch, first_missing};
use crate::debian::{PrivateApt, unpack};
use crate::process;
use crate::report::external;

/// What the guest's kernel has.
const FRAGMENT: &str = include_str!("kernel.config");

/// What 7.3 has as part of SYSCTL, and earlier ones want to be asked for.
const BEFORE_7_3: &str = "CONFIG_PROC_SYSCTL=y\n";

/// Where Debian has new kernels.
const SUITES: [&str; 2] = ["sid", "trixie-backports"];

/// How the source packages are called, before the version.
const PACKAGE: &str = "linux-source-";

/// The first kernel with the driver.
const FIRST: [u32; 2] = [6, 18];

/// What building takes.
const NEEDED: [&str; 7] = ["make", "gcc", "flex", "bison", "bc", "tar", "xz"];
const PACKAGES: &str = "make gcc gcc-aarch64-linux-gnu flex bison bc tar xz-utils";

/// A kernel takes ten minutes on two processors of its own.
const BUILD_LIMIT: Duration = Duration::from_secs(3 * 60 * 60);

/// What is built, relative to the tree.
const IMAGE: &str = "arch/arm64/boot/Image";

/// A kernel that is built.
#[derive(Debug)]
pub(crate) struct Kernel {
    version: String,
    /// What QEMU boots.
    pub(crate) image: PathBuf,
}

/// All of them: a directory outside of the work tree, which outlives it.
#[derive(Debug)]
pub(crate) struct Kernels {
    directory: PathBuf,
    compiler: String,
}

impl Kernels {
    /// Those of this user.
    pub(crate) fn open() -> Result<Self> {
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| Some(std::env::home_dir()?.join(".cache")))
            .context("neither $XDG_CACHE_HOME nor $HOME says where to keep kernels")?;
        let directory = cache.join("rocket-npu");
        fs::create_dir_all(&directory)
            .with_context(|| format!("making {}", directory.display()))?;
        let compiler = Command::new(compiler()).arg("--version").output();
        let compiler = compiler.map(|output| output.stdout).unwrap_or_default();
        let compiler = String::from_utf8_lossy(&compiler).into_owned();
        Ok(Self {
            directory,
            compiler,
        })
    }

    /// Where they are kept.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes others who want the lock `name` wait until the file is closed.
    pub(crate) fn lock(&self, name: &str) -> Result<File> {
        let lock = File::create(self.directory.join(name)).context("making a lock")?;
        lock.lock().context("waiting for a lock")?;
        Ok(lock)
    }

    /// The newest one that is built, and would be built the same now, of the
    /// version `wanted`.
    pub(crate) fn find(&self, wanted: Option<&str>) -> Result<Option<Kernel>> {
        let mut found: Option<Kernel> = None;
        for entry in fs::read_dir(&self.directory).context("listing kernels")? {
            let directory = entry?.path();
            // A file that others may remove meanwhile; without it, no kernel.
            let Ok(version) = fs::read_to_string(directory.join("version")) else {
                continue;
            };
            let newer = found
                .as_ref()
                .is_none_or(|found| numbers(&found.version) < numbers(&version));
            if directory == self.place(&version) && fits(&version, wanted) && newer {
                let image = directory.join("Image");
                found = Some(Kernel { version, image });
            }
        }
        Ok(found)
    }

    /// The newest one that Debian offers, of the version `wanted` if it is
    /// among them; built if it is not yet.
    pub(crate) fn build(&self, wanted: Option<&str>) -> Result<Kernel> {
        let _lock = self.lock("build.lock")?;
        let apt = self.directory.join("apt");
        let offered = PrivateApt::new(&apt, &SUITES, "amd64")
            .and_then(|apt| Ok((apt.offered(PACKAGE)?, apt)));
        let (offered, apt) = match (offered, self.find(wanted)?) {
            (Ok(offered), _) => offered,
            (Err(error), Some(kernel)) => {
                println!("taking what is here, because: {error:#}");
                println!("cached: Linux {}", kernel.version);
                return Ok(kernel);
            }
            (Err(error), None) => return Err(external(&error)).context("asking for kernels"),
        };
        let newest = |wanted| newest(&offered, wanted);
        let chosen = match newest(wanted) {
            Some(chosen) => chosen,
            None => {
                if let Some(kernel) = self.find(wanted)? {
                    println!("cached: Linux {}, which is offered no more", kernel.version);
                    return Ok(kernel);
                }
                let chosen = newest(None).context("Debian offers no kernel with the driver")?;
                let wanted = wanted.unwrap_or_default();
                println!(
                    "Linux {wanted} is not offered: taking the newest, {}",
                    chosen.1
                );
                chosen
            }
        };
        let (package, version) = chosen;
        let place = self.place(version);
        let image = place.join("Image");
        if image.exists() {
            println!("cached: Linux {version}");
        } else {
            println!("building Linux {version}");
            self.make(&apt, package, version, &place)
                .with_context(|| format!("building Linux {version}"))?;
            println!("built: Linux {version}");
        }
        Ok(Kernel {
            version: version.clone(),
            image,
        })
    }

    /// Where a kernel is kept, by all that it is made of.
    fn place(&self, version: &str) -> PathBuf {
        let all = [version, FRAGMENT, BEFORE_7_3, &self.compiler].join("\0");
        let key = XxHash3_128::oneshot(all.as_bytes());
        self.directory.join(format!("linux-{version}-{key:032x}"))
    }

    /// Fetches and compiles a kernel, and moves it to its place when it is
    /// whole.
    fn make(&self, apt: &PrivateApt, package: &str, version: &str, place: &Path) -> Result<()> {
        let compiler = compiler();
        let needed = NEEDED.into_iter().chain([compiler.as_str()]);
        if let Some(missing) = first_missing(needed) {
            bail!("`{missing}` is missing; it takes `apt-get install {PACKAGES}`");
        }
        let work = self.directory.join("work");
        if work.exists() {
            fs::remove_dir_all(&work).context("removing an unfinished build")?;
        }
        let tree = work.join("linux");
        fs::create_dir_all(&tree).context("making the directory")?;
        let fetched = apt.download(&[&format!("{package}={version}")], false)?;
        for file in &fetched {
            unpack(file, &work)?;
            // They are large, and of no use twice.
            fs::remove_file(file).context("removing the package")?;
        }
        let source = work.join(format!("usr/src/{package}.tar.xz"));
        let mut extract = Command::new("tar");
        extract.arg("--extract").arg("--file").arg(&source);
        extract.arg("--strip-components=1").arg("--directory");
        run(extract.arg(&tree), "unpacking the source")?;

        let fragment = tree.join("fragment");
        fs::write(&fragment, [FRAGMENT, BEFORE_7_3].concat())
            .context("writing the configuration")?;
        let make = |target: &[&str]| {
            // Others may use this machine meanwhile.
            let mut make = Command::new("nice");
            make.args(["-n", "10", "make", "ARCH=arm64"])
                .arg(format!("KCONFIG_ALLCONFIG={}", fragment.display()))
                .args(target)
                .current_dir(&tree);
            if let Some(prefix) = compiler.strip_suffix("gcc") {
                make.arg(format!("CROSS_COMPILE={prefix}"));
            }
            make
        };
        run(&mut make(&["allnoconfig"]), "configuring")?;
        let config = fs::read_to_string(tree.join(".config")).context("reading .config")?;
        if let Some(line) = ignored(&config) {
            bail!("the kernel's configuration has no `{line}`");
        }
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        run(&mut make(&[&format!("-j{jobs}"), "Image"]), "compiling")?;

        let whole = work.join("whole");
        fs::create_dir(&whole).context("making the directory")?;
        fs::copy(tree.join(IMAGE), whole.join("Image")).context("keeping the kernel")?;
        fs::write(whole.join("config"), config).context("keeping the configuration")?;
        fs::write(whole.join("version"), version).context("keeping the version")?;
        fs::rename(&whole, place).context("moving the kernel in place")?;
        fs::remove_dir_all(&work).context("removing the source")
    }
}

/// Runs a step of the build.
fn run(command: &mut Command, what: &str) -> Result<()> {
    let command = std::mem::replace(command, Command::new(""));
    process::run(command, BUILD_LIMIT)
        .and_then(|output| output.checked(what))
        .map(drop)
}

/// The compiler for the guest.
fn compiler() -> String {
    match Arch::Arm64.is_native() {
        true => "gcc".to_owned(),
        false => Arch::Arm64.cross_linker(),
    }
}

/// The newest of the packages, with their versions, that have the driver and
/// the version `wanted`.
fn newest<'a>(
    offered: &'a [(String, String)],
    wanted: Option<&str>,
) -> Option<&'a (String, String)> {
    offered
        .iter()
        .filter(|(_, version)| fits(version, wanted) && numbers(version) >= FIRST.to_vec())
        .max_by_key(|(_, version)| numbers(version))
}

/// Whether a version is `wanted`, or begins with it.
fn fits(version: &str, wanted: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| {
        let rest = version.strip_prefix(wanted);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
    })
}

/// The numbers of a version, `7.3.4-1~bpo13+1` say, in order.
fn numbers(version: &str) -> Vec<u32> {
    let parts = version.split(|c: char| !c.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// A line of the fragment that did not come through.
fn ignored(config: &str) -> Option<&'static str> {
    FRAGMENT
        .lines()
        .filter(|line| line.starts_with("CONFIG_"))
        .find(|line| !config.lines().any(|got| got == *line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(versions: &[&str]) -> Vec<(String, String)> {
        let pair = |version: &&str| ("linux-source".to_owned(), (*version).to_owned());
        versions.iter().map(pair).collect()
    }

    #[test]
    fn the_newest_that_fits_is_chosen() {
        let offered = offers(&[
            "7.2.9-1~bpo13+1",
            "7.2.13-1",
            "7.3.4-1~bpo13+1",
            "6.12.95-1",
            "7.2.12-1~bpo13+1",
        ]);
        let chosen = |wanted| newest(&offered, wanted).map(|(_, version)| version.as_str());
        assert_eq!(chosen(None), Some("7.3.4-1~bpo13+1"));
        assert_eq!(chosen(Some("7.2")), Some("7.2.13-1"));
        assert_eq!(chosen(Some("7.2.12")), Some("7.2.12-1~bpo13+1"));
        assert_eq!(chosen(Some("7.2.1")), None);
        assert_eq!(chosen(Some("6.12")), None, "without the driver");
    }

    #[test]
    fn a_kernel_is_found_if_it_would_be_built_the_same() {
        let directory = std::env::temp_dir().join(format!("xtask-kernels-{}", std::process::id()));
        let mut kernels = Kernels {
            directory: directory.clone(),
            compiler: "a compiler".to_owned(),
        };
        for version in ["7.2.9-1", "7.2.13-1"] {
            let place = kernels.place(version);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("version"), version).unwrap();
        }
        let found = |kernels: &Kernels, wanted| {
            let found = kernels.find(wanted).unwrap();
            found.map(|kernel| kernel.version)
        };
        assert_eq!(found(&kernels, None).as_deref(), Some("7.2.13-1"));
        assert_eq!(found(&kernels, Some("7.2.9")).as_deref(), Some("7.2.9-1"));
        assert_eq!(found(&kernels, Some("7.3")), None);
        kernels.compiler = "another".to_owned();
        assert_eq!(found(&kernels, None), None);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_is_missing_in_a_configuration_is_told() {
        assert_eq!(ignored(FRAGMENT), None);
        let config = FRAGMENT.replace("CONFIG_DRM=y", "# CONFIG_DRM is not set");
        assert_eq!(ignored(&config), Some("CONFIG_DRM=y"));
    }
}
