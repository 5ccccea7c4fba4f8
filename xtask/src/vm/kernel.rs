// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels for the guest: Debian's source packages, cross-compiled with the
//! few drivers that a guest needs, and kept.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use twox_hash::XxHash3_128;

use super::compile::{self, Compiler};
use crate::debian::{PrivateApt, unpack};
use crate::report::external;

/// Debian's suites that offer new kernels.
const SUITES: [&str; 2] = ["sid", "trixie-backports"];

/// Name of the source packages, before the version.
const PACKAGE: &str = "linux-source-";

/// The first kernel with the driver.
const FIRST: [u32; 2] = [6, 18];

/// Which kernel to build, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelRecipe {
    /// The version, or how it begins; the newest without.
    pub(crate) version: Option<String>,
    /// Whether the kernel looks for mistakes of its own.
    pub(crate) kasan: bool,
    /// A source tree of the user's own, instead of Debian's.
    pub(crate) tree: Option<PathBuf>,
    /// Patches for Debian's.
    pub(crate) patches: Vec<PathBuf>,
}

/// A kernel that is built.
#[derive(Debug)]
pub(crate) struct LinuxKernel {
    version: String,
    /// The file that QEMU boots.
    pub(crate) image: PathBuf,
}

/// The kernels that were built: a directory outside of the work tree, which outlives
/// it.
#[derive(Debug)]
pub(crate) struct KernelStore {
    directory: PathBuf,
    compiler: Compiler,
}

impl KernelStore {
    /// Opens the store of this user, in the cache directory.
    pub(crate) fn open() -> Result<Self> {
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| Some(std::env::home_dir()?.join(".cache")))
            .context("neither $XDG_CACHE_HOME nor $HOME says where to keep kernels")?;
        let directory = cache.join("rocket-npu");
        fs::create_dir_all(&directory)
            .with_context(|| format!("making {}", directory.display()))?;
        Ok(Self {
            directory,
            compiler: Compiler::of_guest(),
        })
    }

    /// The directory that the kernels are kept in.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes others who want the lock `name` wait until the file is closed.
    pub(crate) fn lock(&self, name: &str) -> Result<File> {
        let lock = File::create(self.directory.join(name)).context("making a lock")?;
        lock.lock().context("waiting for a lock")?;
        Ok(lock)
    }

    /// The kernel, built unless it is there. Of a tree of the user's own what
    /// has changed is built.
    pub(crate) fn get(&self, recipe: &KernelRecipe) -> Result<LinuxKernel> {
        match (&recipe.tree, self.find(recipe)?) {
            (None, Some(kernel)) => Ok(kernel),
            _ => self.build(recipe),
        }
    }

    /// The newest one that is built, and would be built the same now.
    fn find(&self, recipe: &KernelRecipe) -> Result<Option<LinuxKernel>> {
        let wanted = recipe.version.as_deref();
        let mut found: Option<LinuxKernel> = None;
        for entry in fs::read_dir(&self.directory).context("listing kernels")? {
            let directory = entry?.path();
            // A file that others may remove meanwhile; without it, no kernel.
            let Ok(version) = fs::read_to_string(directory.join("version")) else {
                continue;
            };
            let newer = found
                .as_ref()
                .is_none_or(|found| numbers(&found.version) < numbers(&version));
            if directory == self.place(&version, recipe)? && fits(&version, wanted) && newer {
                let image = directory.join("Image");
                found = Some(LinuxKernel { version, image });
            }
        }
        Ok(found)
    }

    /// The newest one that Debian offers, of the version that is wanted if it is
    /// among them; built if it is not yet. Or the user's own.
    pub(crate) fn build(&self, recipe: &KernelRecipe) -> Result<LinuxKernel> {
        let _lock = self.lock("build.lock")?;
        if let Some(tree) = &recipe.tree {
            return self.build_tree(tree, recipe.kasan);
        }
        let wanted = recipe.version.as_deref();
        let apt = self.directory.join("apt");
        let offered = PrivateApt::new(&apt, &SUITES, "amd64")
            .and_then(|apt| Ok((apt.offered(PACKAGE)?, apt)));
        let (offered, apt) = match (offered, self.find(recipe)?) {
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
                if let Some(kernel) = self.find(recipe)? {
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
        let place = self.place(version, recipe)?;
        let image = place.join("Image");
        if image.exists() {
            println!("cached: Linux {version}");
        } else {
            println!("building Linux {version}");
            self.make(&apt, package, version, recipe, &place)
                .with_context(|| format!("building Linux {version}"))?;
            println!("built: Linux {version}");
        }
        Ok(LinuxKernel {
            version: version.clone(),
            image,
        })
    }

    /// The directory of a kernel, named by a digest of all that it is made of.
    fn place(&self, version: &str, recipe: &KernelRecipe) -> Result<PathBuf> {
        let mut all = vec![
            version.to_owned().into_bytes(),
            compile::configuration(recipe.kasan).into_bytes(),
            self.compiler.version.clone().into_bytes(),
        ];
        for patch in &recipe.patches {
            all.push(fs::read(patch).with_context(|| format!("reading {}", patch.display()))?);
        }
        let key = XxHash3_128::oneshot(&all.join(&0));
        Ok(self.directory.join(format!("linux-{version}-{key:032x}")))
    }

    /// Builds what has changed of a tree of the user's own, beside it.
    fn build_tree(&self, tree: &Path, kasan: bool) -> Result<LinuxKernel> {
        self.compiler.check()?;
        let tree = fs::canonicalize(tree).with_context(|| format!("finding {}", tree.display()))?;
        let name = tree.to_string_lossy();
        let key = XxHash3_128::oneshot(format!("{name}\0{kasan}").as_bytes());
        println!("building {name}");
        let output = self.directory.join(format!("tree-{key:032x}"));
        let image = self
            .compiler
            .compile(&tree, &output, kasan)
            .with_context(|| format!("building {name}"))?;
        println!("built: {name}");
        let version = name.into_owned();
        Ok(LinuxKernel { version, image })
    }

    /// Fetches and compiles a kernel, and moves it to its place when it is
    /// whole.
    fn make(
        &self,
        apt: &PrivateApt,
        package: &str,
        version: &str,
        recipe: &KernelRecipe,
        place: &Path,
    ) -> Result<()> {
        self.compiler.check()?;
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
        extract.arg(&tree);
        compile::run(extract, "unpacking the source")?;
        for file in &recipe.patches {
            let file = fs::canonicalize(file).context("finding a patch")?;
            let mut patch = Command::new("patch");
            patch.args(["--strip=1", "--batch", "--forward", "--input"]);
            patch.arg(&file).current_dir(&tree);
            compile::run(patch, &format!("`patch` with {}", file.display()))?;
        }
        let image = self.compiler.compile(&tree, &tree, recipe.kasan)?;

        let whole = work.join("whole");
        fs::create_dir(&whole).context("making the directory")?;
        fs::copy(image, whole.join("Image")).context("keeping the kernel")?;
        fs::copy(tree.join(".config"), whole.join("config"))
            .context("keeping the configuration")?;
        fs::write(whole.join("version"), version).context("keeping the version")?;
        fs::rename(&whole, place).context("moving the kernel in place")?;
        fs::remove_dir_all(&work).context("removing the source")
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
        let mut kernels = KernelStore {
            directory: directory.clone(),
            compiler: Compiler::of_guest(),
        };
        let plain = KernelRecipe::default();
        for version in ["7.2.9-1", "7.2.13-1"] {
            let place = kernels.place(version, &plain).unwrap();
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("version"), version).unwrap();
        }
        let found = |kernels: &KernelStore, recipe: &KernelRecipe| {
            let found = kernels.find(recipe).unwrap();
            found.map(|kernel| kernel.version)
        };
        let of = |version: &str| KernelRecipe {
            version: Some(version.to_owned()),
            ..plain.clone()
        };
        assert_eq!(found(&kernels, &plain).as_deref(), Some("7.2.13-1"));
        assert_eq!(found(&kernels, &of("7.2.9")).as_deref(), Some("7.2.9-1"));
        assert_eq!(found(&kernels, &of("7.3")), None);
        let patch = directory.join("patch");
        fs::write(&patch, "-a\n+b\n").unwrap();
        let kasan = KernelRecipe {
            kasan: true,
            ..plain.clone()
        };
        let patched = KernelRecipe {
            patches: vec![patch],
            ..plain.clone()
        };
        assert_eq!(found(&kernels, &kasan), None);
        assert_eq!(found(&kernels, &patched), None);
        kernels.compiler.version += "another";
        assert_eq!(found(&kernels, &plain), None);
        fs::remove_dir_all(directory).unwrap();
    }
}
