// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes one Debian package.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::contents::{OVERRIDES, Package, Source};
use super::{Origin, VERSION, licences, needed};
use crate::arch::Arch;
use crate::paths;
use crate::process::run_checked;

/// Who makes the packages.
const MAINTAINER: &str = "The rocket-npu contributors <rocket-npu@localhost>";

/// Modes of files.
const PROGRAM: u32 = 0o755;
const DATA: u32 = 0o644;

/// Makes `package` from what `origin` has into the directory `to`; returns its file.
pub(super) fn build(package: &Package, origin: &Origin, arch: Arch, to: &Path) -> Result<PathBuf> {
    let staging = to.join("staging").join(package.name);
    if staging.exists() {
        fs::remove_dir_all(&staging).context("removing an unfinished package")?;
    }
    let mut stage = Stage {
        root: &staging,
        origin,
        objects: Vec::new(),
    };
    for (source, place) in package.files {
        let place = place.replace("{triplet}", arch.triplet());
        stage
            .add(*source, &place, arch)
            .with_context(|| format!("{place} of {}", package.name))?;
    }
    let depends = match &stage.objects[..] {
        [] => String::new(),
        objects => format!("Depends: {}\n", needed::depends(objects)?),
    };
    stage.documents(package, arch)?;
    let control = control(package, arch, &depends, size_kib(&staging)?);
    stage.text("DEBIAN/md5sums", &checksums(&staging)?, DATA)?;
    stage.text("DEBIAN/control", &control, DATA)?;
    directories(&staging)?;

    let file = to.join(format!("{}_{VERSION}_{}.deb", package.name, arch.debian()));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.args(["--root-owner-group", "-Zxz", "--threads-max=1", "--build"])
        .arg(&staging)
        .arg(&file)
        .env("SOURCE_DATE_EPOCH", &origin.epoch);
    run_checked(&mut dpkg)?;
    Ok(file)
}

/// A package's files where they are put together.
struct Stage<'a> {
    root: &'a Path,
    origin: &'a Origin,
    /// Programs and libraries that were added.
    objects: Vec<PathBuf>,
}

impl Stage<'_> {
    fn add(&mut self, source: Source, place: &str, arch: Arch) -> Result<()> {
        match source {
            Source::Program(name) => self.object(name, place, PROGRAM),
            Source::Library(name) => self.object(name, place, DATA),
            Source::Repository(path) => self.copy(&paths::root().join(path), place, DATA),
            Source::PkgConfig(path) => {
                let text = paths::text(&paths::root().join(path))?
                    .replace("@prefix@", "/usr")
                    .replace("@libdir@", &format!("${{prefix}}/lib/{}", arch.triplet()))
                    .replace("@version@", VERSION);
                self.text(place, &text, DATA)
            }
            Source::Line(line) => self.text(place, &format!("{line}\n"), DATA),
            Source::Manual(name) => self.copy(&self.origin.manuals.join(name), place, DATA),
            Source::ManPages(name) => self.man_pages(name, place),
            Source::Link(to) => {
                let place = self.place(place)?;
                symlink(to, place).context("linking")
            }
        }
    }

    fn object(&mut self, name: &str, place: &str, mode: u32) -> Result<()> {
        let file = self.origin.built.join(name);
        self.copy(&file, place, mode)?;
        self.objects.push(file);
        Ok(())
    }

    fn man_pages(&self, name: &str, directory: &str) -> Result<()> {
        let mut pages = Vec::new();
        for entry in fs::read_dir(&self.origin.manuals).context("listing the man pages")? {
            let page = entry?.path();
            let file = page
                .file_name()
                .map(OsStr::to_string_lossy)
                .unwrap_or_default();
            if file.starts_with(name) && file.ends_with(".1") {
                pages.push((file.into_owned(), page));
            }
        }
        if pages.is_empty() {
            bail!("there is no man page {name}");
        }
        for (file, page) in pages {
            self.packed(&format!("{directory}/{file}"), &paths::text(&page)?)?;
        }
        Ok(())
    }

    /// What each package says about itself.
    fn documents(&self, package: &Package, arch: Arch) -> Result<()> {
        let place = |name: &str| format!("usr/share/doc/{}/{name}", package.name);
        let mit = paths::text(&paths::root().join("LICENSE-MIT"))?;
        self.text(&place("copyright"), &copyright(&mit), DATA)?;
        if !package.members.is_empty() {
            let others = licences::third_party(package.members, arch.rust_target())?;
            self.packed(&place("third-party-licences"), &others)?;
        }
        let changes = format!(
            "{} ({VERSION}) unstable; urgency=medium\n\n  * CHANGELOG.md of the sources tells of \
             changes.\n\n -- {MAINTAINER}  {}\n",
            package.name, self.origin.date
        );
        self.packed(&place("changelog"), &changes)?;
        let mut overrides = String::new();
        for line in OVERRIDES {
            match line.starts_with('#') {
                true => writeln!(overrides, "{line}")?,
                false => writeln!(overrides, "{}: {line}", package.name)?,
            }
        }
        let file = format!("usr/share/lintian/overrides/{}", package.name);
        self.text(&file, &overrides, DATA)
    }

    /// A text, compressed.
    fn packed(&self, place: &str, text: &str) -> Result<()> {
        self.text(place, text, DATA)?;
        let mut gzip = Command::new("gzip");
        gzip.args(["--best", "--no-name"])
            .arg(self.root.join(place));
        run_checked(&mut gzip)
    }

    fn copy(&self, from: &Path, place: &str, mode: u32) -> Result<()> {
        let place = self.place(place)?;
        fs::copy(from, &place).with_context(|| format!("copying {}", from.display()))?;
        fs::set_permissions(&place, Permissions::from_mode(mode)).context("setting its mode")
    }

    fn text(&self, place: &str, text: &str, mode: u32) -> Result<()> {
        let place = self.place(place)?;
        fs::write(&place, text).with_context(|| format!("writing {}", place.display()))?;
        fs::set_permissions(&place, Permissions::from_mode(mode)).context("setting its mode")
    }

    fn place(&self, place: &str) -> Result<PathBuf> {
        let place = self.root.join(place);
        let parent = place.parent().unwrap_or(self.root);
        fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        Ok(place)
    }
}

/// The file that tells dpkg what the package is.
fn control(package: &Package, arch: Arch, depends: &str, size_kib: u64) -> String {
    let mut text = format!(
        "Package: {}\nVersion: {VERSION}\nArchitecture: {}\nMaintainer: {MAINTAINER}\nSection: {}\n\
         Priority: optional\nInstalled-Size: {size_kib}\n{depends}",
        package.name,
        arch.debian(),
        package.section,
    );
    for field in package.fields {
        text += &format!("{}\n", field.replace("{version}", VERSION));
    }
    text += &format!("Description: {}\n", package.summary);
    for line in package.text {
        text += &format!(" {line}\n");
    }
    text
}

/// The licence, in Debian's form.
fn copyright(mit: &str) -> String {
    let mut text = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: rocket-npu

Files: *
Copyright: 2026 The rocket-npu contributors
License: MIT or Apache-2.0
Comment: Crates that are linked into a program or library have licences of their own,
 which are in third-party-licences.gz beside this file.

License: Apache-2.0
 /usr/share/common-licenses/Apache-2.0 has the text.

License: MIT
"
    .to_owned();
    for line in mit.trim_end().lines() {
        text += &match line.trim() {
            "" => " .\n".to_owned(),
            line => format!(" {line}\n"),
        };
    }
    text
}

/// Sums of all files, in the order of their paths.
fn checksums(root: &Path) -> Result<String> {
    let mut list = Command::new("sh");
    list.args([
        "-euc",
        "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum",
    ])
    .current_dir(root);
    Ok(crate::process::run(list, super::LIMIT)?
        .checked("md5sum")?
        .text())
}

/// What the files take, in KiB, each rounded up.
fn size_kib(root: &Path) -> Result<u64> {
    let mut size = 0;
    for entry in fs::read_dir(root).with_context(|| format!("reading {}", root.display()))? {
        let path = entry?.path();
        let metadata = fs::symlink_metadata(&path)?;
        size += match metadata.is_dir() {
            true => 1 + size_kib(&path)?,
            false => metadata.len().div_ceil(1024),
        };
    }
    Ok(size)
}

/// Has all directories be as Debian's are, whatever the umask is here.
fn directories(root: &Path) -> Result<()> {
    fs::set_permissions(root, Permissions::from_mode(PROGRAM)).context("setting a mode")?;
    for entry in fs::read_dir(root).with_context(|| format!("reading {}", root.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            directories(&entry.path())?;
        }
    }
    Ok(())
}
