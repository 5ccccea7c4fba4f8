// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask container`: builds the image of docs/questions.md from the packages of
//! `cargo xtask dist`, and runs its commands on the software model, with podman.
//!
//! No registry is needed: a Debian from the machine's mirror replaces `debian:sid`. The settings
//! let podman run with few rights, such as in a container.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::arch::Arch;
use crate::process::{as_root, run_checked};
use crate::{clean, debian, paths, process};

/// The page with the recipe.
const PAGE: &str = "docs/questions.md";

/// The base image of the recipe, and its suite.
const BASE: &str = "debian:sid";
const SUITE: &str = "sid";

/// What the last command of the recipe must print.
const DEVICE: &str = "ROCKET-MODEL0: software model";

/// Podman's settings: no cgroups, no network namespace, and limits that any caller may set.
const CONTAINERS: &str = r#"[containers]
cgroups = "disabled"
netns = "host"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"#;

/// Runs a script as if all of the machine's cgroups were of version 2, as podman wants it.
const CGROUP2: &str = r#"
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec sh -euxc "$1"
"#;

/// Builds the image, runs it, and removes everything that it made.
pub(crate) fn run() -> Result<()> {
    let folder = std::path::absolute(paths::target().join("container"))?;
    let remove = || run_checked(as_root("rm").arg("-rf").arg(&folder));
    remove()?;
    let outcome = build_and_run(&folder);
    remove()?;
    outcome
}

fn build_and_run(folder: &Path) -> Result<()> {
    let arch = Arch::native();
    let page = paths::text(&paths::root().join(PAGE))?;
    // The recipe is for a board; the packages for this machine have other names.
    let [image, commands] = ["dockerfile", "sh"].map(|language| {
        let block = block(&page, language).map(|text| text.replace("_arm64.deb", &package(arch)));
        block.with_context(|| format!("{PAGE} has no code block in {language}"))
    });
    let commands = commands?.replace("docker ", "podman ");
    fs::create_dir_all(folder.join("target")).context("making a directory")?;
    fs::write(folder.join("Dockerfile"), image?).context("writing the Dockerfile")?;
    let dist = paths::target().join("dist");
    let packages = paths::files(&dist, &["deb"])?;
    let packages = packages.iter().filter(|file| {
        file.parent() == Some(&dist) && file.to_string_lossy().ends_with(&package(arch))
    });
    let context = folder.join("target/dist");
    fs::create_dir_all(&context).context("making a directory")?;
    let mut count = 0;
    for file in packages {
        fs::copy(file, context.join(file.file_name().unwrap_or_default()))?;
        count += 1;
    }
    ensure!(
        count > 0,
        "target/dist has no packages; run `cargo xtask dist --arch {arch}` first"
    );
    let base = folder.join("base.tar");
    // It has apt, as the image of that name does.
    clean::make((SUITE, arch), &["apt"], &base)?;

    let storage = format!(
        "[storage]\ndriver = \"vfs\"\ngraphroot = \"{0}/images\"\nrunroot = \"{0}/run\"\n",
        folder.display()
    );
    fs::write(folder.join("storage.conf"), storage).context("writing settings")?;
    fs::write(folder.join("containers.conf"), CONTAINERS).context("writing settings")?;
    let script = format!("podman import --quiet base.tar {BASE}\n{commands}");
    let set = |name: &str, file: &str| format!("{name}={}", folder.join(file).display());
    let mut podman = as_root("env");
    podman
        .arg(format!("--chdir={}", folder.display()))
        .arg(set("CONTAINERS_CONF", "containers.conf"))
        .arg(set("CONTAINERS_STORAGE_CONF", "storage.conf"))
        .arg("BUILDAH_ISOLATION=chroot")
        .args(["unshare", "--mount", "sh", "-euc", CGROUP2, "sh", &script]);
    let output = process::run(&podman, debian::FETCH_LIMIT)?.checked("building the image")?;
    print!("{}", output.stdout);
    ensure!(
        output.stdout.contains(DEVICE),
        "the container does not show `{DEVICE}`"
    );
    println!("PASS the image of {PAGE} is built and shows the device");
    Ok(())
}

/// The suffix of this architecture's package names.
fn package(arch: Arch) -> String {
    format!("_{arch}.deb")
}

/// The first block of `language` on a page.
fn block<'a>(page: &'a str, language: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(&format!("\n```{language}\n"))?;
    let (block, _) = rest.split_once("```\n")?;
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both blocks belong to the recipe, and the commands need no NPU.
    #[test]
    fn the_page_has_the_recipe() {
        let page = paths::text(&paths::root().join(PAGE)).unwrap();
        let image = block(&page, "dockerfile").unwrap();
        assert!(image.starts_with(&format!("FROM {BASE}\n")), "{image}");
        assert!(image.contains("_arm64.deb"), "{image}");
        let commands = block(&page, "sh").unwrap();
        assert!(commands.starts_with("docker build "), "{commands}");
        assert!(!commands.contains("/dev/accel"), "{commands}");
        assert_eq!(block("a\n```c\nint;\n```\n", "c"), Some("int;\n"));
        assert_eq!(block("a\n", "c"), None);
    }
}
