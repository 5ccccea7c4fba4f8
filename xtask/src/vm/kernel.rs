// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels for the guest: Debian's source packages, cross-compiled with the few drivers that a
//! guest needs, and kept.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use twox_hash::XxHash3_128;

use super::guest::KernelArgs;
use crate::arch::{Arch, first_missing};
use crate::debian::{PrivateApt, unpack};
use crate::paths;
use crate::process::{external, run_checked};

/// Debian's suites that offer new kernels.
const SUITES: [&str; 2] = ["sid", "trixie-backports"];

/// Name of the source packages, before the version.
const PACKAGE: &str = "linux-source-";

/// The first kernel with the driver.
const FIRST: [u32; 2] = [6, 18];

/// Options of the guest's kernel: the few drivers that a guest needs; an option that is part of
/// SYSCTL in 7.3 but separate before; and the kernel's checks of itself.
const FRAGMENT: &str = include_str!("kernel.config");
const BEFORE_7_3: &str = "CONFIG_PROC_SYSCTL=y\n";
const KASAN: &str = include_str!("kasan.config");

/// The image for QEMU in the kernel's output directory.
const IMAGE: &str = "arch/arm64/boot/Image";

/// What compiles a kernel and its trees.
const SCRIPT: &str = include_str!("kernel.sh");

/// The device trees of boards, beside the image.
pub(super) const TREES: &str = "dts/rockchip";

/// Programs that a kernel build needs besides a compiler, and the packages of all of them.
const NEEDED: [&str; 7] = ["make", "flex", "bison", "bc", "tar", "xz", "patch"];
const PACKAGES: &str = "make gcc gcc-aarch64-linux-gnu flex bison bc tar xz-utils patch";

/// The built kernels: a directory outside the work tree, which outlives the tree.
#[derive(Debug)]
pub(super) struct KernelStore {
    pub(super) directory: PathBuf,
    /// A gcc, and its version text.
    compiler: [String; 2],
}

impl KernelStore {
    /// Opens the store of this user, in the cache directory.
    pub(super) fn open() -> Result<Self> {
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| Some(std::env::home_dir()?.join(".cache")))
            .context("neither $XDG_CACHE_HOME nor $HOME is set, so kernels cannot be kept")?;
        let directory = cache.join("rocket-npu");
        fs::create_dir_all(&directory)
            .with_context(|| format!("making {}", directory.display()))?;
        let gcc = if Arch::Arm64.is_native() {
            "gcc".to_owned()
        } else {
            Arch::Arm64.cross_linker()
        };
        let version = Command::new(&gcc).arg("--version").output();
        let version = version.map(|output| output.stdout).unwrap_or_default();
        let version = String::from_utf8_lossy(&version).into_owned();
        Ok(Self {
            directory,
            compiler: [gcc, version],
        })
    }

    /// Takes the lock `name`, which others wait for until the file is closed.
    pub(super) fn lock(&self, name: &str) -> Result<File> {
        let lock = File::create(self.directory.join(name)).context("making a lock")?;
        lock.lock().context("waiting for a lock")?;
        Ok(lock)
    }

    /// The file of the kernel that QEMU boots, built if it is missing. A source tree of the user is
    /// always rebuilt where it has changed.
    pub(super) fn get(&self, kernel: &KernelArgs) -> Result<PathBuf> {
        match (&kernel.tree, self.find(kernel)?) {
            (None, Some(version)) => self.image(&version, kernel),
            _ => self.build(kernel),
        }
    }

    /// The newest built version that a build now would give unchanged.
    fn find(&self, kernel: &KernelArgs) -> Result<Option<String>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory).context("listing kernels")? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let version = name
                .strip_prefix("linux-")
                .and_then(|rest| rest.rsplit_once('-'));
            let Some((version, _)) = version else {
                continue;
            };
            let image = self.image(version, kernel)?;
            if fits(version, kernel)
                && image == self.directory.join(&name).join("Image")
                && image.exists()
            {
                found.push(version.to_owned());
            }
        }
        Ok(found.into_iter().max_by_key(|version| numbers(version)))
    }

    /// The newest kernel that Debian offers, of the wanted version if there is one, or the user's
    /// own. Builds it if it is missing.
    pub(super) fn build(&self, kernel: &KernelArgs) -> Result<PathBuf> {
        let _lock = self.lock("build.lock")?;
        if let Some(missing) = first_missing(NEEDED.into_iter().chain([&self.compiler[0][..]])) {
            bail!("`{missing}` is missing; install it with `apt-get install {PACKAGES}`");
        }
        if let Some(tree) = &kernel.tree {
            return self.build_tree(tree, kernel.kasan);
        }
        let offered = PrivateApt::new(&self.directory.join("apt"), &SUITES, "amd64")
            .and_then(|apt| Ok((apt.offered(PACKAGE)?, apt)));
        let built = self.find(kernel)?;
        let (offered, apt) = match (offered, &built) {
            (Ok(offered), _) => offered,
            (Err(error), Some(version)) => {
                println!(
                    "cached: Linux {version}, since asking Debian for kernels failed: {error:#}"
                );
                return self.image(version, kernel);
            }
            (Err(error), None) => {
                return Err(external(&error)).context("asking Debian for kernels");
            }
        };
        let (package, version) = match (newest(&offered, kernel), built) {
            (Some(chosen), _) => chosen,
            (None, Some(version)) => {
                println!("cached: Linux {version}, no longer offered by Debian");
                return self.image(&version, kernel);
            }
            (None, None) => {
                let named: Vec<_> = offered.iter().map(|(_, version)| &version[..]).collect();
                bail!(
                    "Debian offers no such kernel with the driver; it offers {}",
                    named.join(", ")
                );
            }
        };
        let image = self.image(version, kernel)?;
        if image.exists() {
            println!("cached: Linux {version}");
        } else {
            println!("building Linux {version}");
            self.make(&apt, package, version, kernel, &image)
                .with_context(|| format!("building Linux {version}"))?;
            println!("built: Linux {version}");
        }
        Ok(image)
    }

    /// The file of a kernel, in a directory named by a digest of everything it is made from.
    fn image(&self, version: &str, kernel: &KernelArgs) -> Result<PathBuf> {
        let mut all = vec![
            version.to_owned().into_bytes(),
            configuration(kernel.kasan).into_bytes(),
            SCRIPT.to_owned().into_bytes(),
            self.compiler[1].clone().into_bytes(),
        ];
        for patch in &kernel.patches {
            all.push(fs::read(patch).with_context(|| format!("reading {}", patch.display()))?);
        }
        let key = XxHash3_128::oneshot(&all.join(&0));
        Ok(self
            .directory
            .join(format!("linux-{version}-{key:032x}/Image")))
    }

    /// Builds the changes of a source tree of the user, in a separate directory.
    fn build_tree(&self, tree: &Path, kasan: bool) -> Result<PathBuf> {
        let tree = fs::canonicalize(tree).with_context(|| format!("finding {}", tree.display()))?;
        let name = tree.to_string_lossy();
        let key = XxHash3_128::oneshot(format!("{name}\0{kasan}").as_bytes());
        println!("building {name}");
        let output = self.directory.join(format!("tree-{key:032x}"));
        run_checked(&mut self.script(&tree, &output, kasan)?)
            .with_context(|| format!("building {name}"))?;
        println!("built: {name}");
        Ok(output.join(IMAGE))
    }

    /// Fetches and compiles a kernel, and moves it to its place when it is complete.
    fn make(
        &self,
        apt: &PrivateApt,
        package: &str,
        version: &str,
        kernel: &KernelArgs,
        image: &Path,
    ) -> Result<()> {
        let work = self.directory.join("work");
        if work.exists() {
            fs::remove_dir_all(&work).context("removing an unfinished build")?;
        }
        for file in apt.download(&[&format!("{package}={version}")], false)? {
            unpack(&file, &work)?;
            // The packages are large and needed only once.
            fs::remove_file(file).context("removing the package")?;
        }
        let output = work.join("output");
        let mut script = self.script(&work.join("linux"), &output, kernel.kasan)?;
        script.env("ARCHIVE", work.join(format!("usr/src/{package}.tar.xz")));
        for file in &kernel.patches {
            script.arg(fs::canonicalize(file).context("finding a patch")?);
        }
        run_checked(&mut script)?;
        let built = output.join(IMAGE);
        let (trees, kept) = (built.with_file_name(TREES), image.with_file_name(TREES));
        fs::create_dir_all(kept.with_file_name("")).context("making the kernel's directory")?;
        fs::rename(trees, kept).context("moving the device trees in place")?;
        fs::rename(built, image).context("moving the kernel in place")?;
        fs::remove_dir_all(&work).context("removing the source")
    }

    /// The command that compiles the tree at `source` into `output`.
    fn script(&self, source: &Path, output: &Path, kasan: bool) -> Result<Command> {
        fs::create_dir_all(output).context("making the directory")?;
        fs::write(output.join("fragment"), configuration(kasan))
            .context("writing the configuration")?;
        let mut script = Command::new("sh");
        script
            .arg(paths::root().join("xtask/src/vm/kernel.sh"))
            .env("SOURCE", source)
            .env("OUTPUT", output)
            .env("COMPILER", &self.compiler[0]);
        Ok(script)
    }
}

/// The configuration of a kernel, a line for each option.
fn configuration(kasan: bool) -> String {
    [FRAGMENT, BEFORE_7_3, if kasan { KASAN } else { "" }].concat()
}

/// The newest package with the driver and of the wanted version, and its own version.
fn newest<'a>(
    offered: &'a [(String, String)],
    kernel: &KernelArgs,
) -> Option<&'a (String, String)> {
    offered
        .iter()
        .filter(|(_, version)| fits(version, kernel) && numbers(version) >= FIRST.to_vec())
        .max_by_key(|(_, version)| numbers(version))
}

/// Whether a version is the wanted one, or begins with it.
fn fits(version: &str, kernel: &KernelArgs) -> bool {
    kernel.version.as_deref().is_none_or(|wanted| {
        let rest = version.strip_prefix(wanted);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
    })
}

/// The numbers of a version such as `7.3.4-1~bpo13+1`, in order.
fn numbers(version: &str) -> Vec<u32> {
    let parts = version.split(|c: char| !c.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(version: &str) -> KernelArgs {
        KernelArgs {
            version: Some(version.to_owned()),
            ..KernelArgs::default()
        }
    }

    #[test]
    fn the_newest_that_fits_is_chosen() {
        let versions = [
            "7.2.9-1~bpo13+1",
            "7.2.13-1",
            "7.3.4-1~bpo13+1",
            "6.12.95-1",
            "7.2.12-1~bpo13+1",
        ];
        let offered = versions.map(|version| ("linux-source".to_owned(), version.to_owned()));
        let chosen = |kernel| newest(&offered, &kernel).map(|(_, version)| version.as_str());
        assert_eq!(chosen(KernelArgs::default()), Some("7.3.4-1~bpo13+1"));
        assert_eq!(chosen(of("7.2")), Some("7.2.13-1"));
        assert_eq!(chosen(of("7.2.12")), Some("7.2.12-1~bpo13+1"));
        assert_eq!(chosen(of("7.2.1")), None);
        assert_eq!(chosen(of("6.12")), None, "without the driver");
    }

    #[test]
    fn a_kernel_is_found_if_it_would_be_built_the_same() {
        let directory = std::env::temp_dir().join(format!("xtask-kernels-{}", std::process::id()));
        let mut kernels = KernelStore {
            directory: directory.clone(),
            compiler: Default::default(),
        };
        let plain = KernelArgs::default();
        for version in ["7.2.9-1", "7.2.13-1"] {
            let image = kernels.image(version, &plain).unwrap();
            fs::create_dir_all(image.with_file_name("")).unwrap();
            fs::write(image, "").unwrap();
        }
        let found = |kernels: &KernelStore, kernel: &KernelArgs| kernels.find(kernel).unwrap();
        assert_eq!(found(&kernels, &plain).as_deref(), Some("7.2.13-1"));
        assert_eq!(found(&kernels, &of("7.2.9")).as_deref(), Some("7.2.9-1"));
        assert_eq!(found(&kernels, &of("7.3")), None);
        let patch = directory.join("patch");
        fs::write(&patch, "-a\n+b\n").unwrap();
        let kasan = KernelArgs {
            kasan: true,
            ..plain.clone()
        };
        let patched = KernelArgs {
            patches: vec![patch],
            ..plain.clone()
        };
        assert_eq!(found(&kernels, &kasan), None);
        assert_eq!(found(&kernels, &patched), None);
        kernels.compiler[1] += "another";
        assert_eq!(found(&kernels, &plain), None);
        fs::remove_dir_all(directory).unwrap();
    }
}
