// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask fresh`: what README tells users to run first, in a Debian that
//! has what README asks for and nothing else.
//!
//! The root is made from the package sources that this machine is set up with.
//! It gets the sources as a clone would have them, and this machine's rustup,
//! crates and target directory, at the paths where they are here: so what is
//! built there need not be built again. All that is mounted is so in a namespace
//! that ends with the commands, however they end.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::paths;
use crate::process::{as_root, run_checked};

/// Debian's packages that README names.
pub(crate) const PACKAGES: &[&str] = &["gcc", "libc6-dev"];

/// The commands that README tells, and options that make them tell all.
pub(crate) const COMMANDS: [&str; 2] = [
    "cargo run --release -p npu-probe",
    "cargo test --no-fail-fast -- --show-output",
];

/// Where package sources are read from, with `sources.list.d`.
const APT: &str = "/etc/apt";

/// Mounts, then goes into the root: the root, pairs of a directory here and its
/// place there, `--`, what chroot takes.
const ENTER: &str = r#"
root=$1
shift
while [ "$1" != -- ]; do
    mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
    shift 2
done
shift
mount -t proc proc "$root/proc"
exec chroot "$@"
"#;

/// Makes the root, runs the commands, and removes it.
pub(crate) fn run() -> Result<()> {
    let fresh = Fresh::new()?;
    fresh.remove()?;
    let outcome = fresh.make().and_then(|()| fresh.run_commands());
    fresh.remove()?;
    outcome
}

struct Fresh {
    target: PathBuf,
    /// Below it: the root, the sources.
    folder: PathBuf,
    /// User and group of whoever runs this, if that is not root.
    user: Option<String>,
    cargo_home: PathBuf,
    rustup_home: PathBuf,
}

impl Fresh {
    fn new() -> Result<Self> {
        let user = told("id", &["-u"])?;
        let home = |variable, name| {
            let own = || std::env::home_dir().map(|home| home.join(name));
            std::env::var_os(variable)
                .map(PathBuf::from)
                .or_else(own)
                .with_context(|| format!("neither {variable} nor HOME is set"))
        };
        let target = std::path::absolute(paths::target()).context("finding the target")?;
        Ok(Self {
            folder: target.join("fresh"),
            target,
            user: match user.as_str() {
                "0" => None,
                _ => Some(format!("{user}:{}", told("id", &["-g"])?)),
            },
            cargo_home: home("CARGO_HOME", ".cargo")?,
            rustup_home: home("RUSTUP_HOME", ".rustup")?,
        })
    }

    fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    fn sources(&self) -> PathBuf {
        self.folder.join("sources")
    }

    fn remove(&self) -> Result<()> {
        run_checked(as_root("rm").arg("-rf").arg(&self.folder))
    }

    fn make(&self) -> Result<()> {
        fs::create_dir_all(&self.folder).context("making a directory")?;
        copy_sources(&self.sources())?;
        // The crates, for a root that is told of no network.
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let mut fetch = Command::new("cargo");
        fetch.args(["fetch", "--quiet", "--locked", "--target", &target]);
        run_checked(fetch.current_dir(paths::root()))?;

        let settings = self.folder.join("apt.conf");
        fs::write(&settings, apt_settings()?).context("writing settings for apt")?;
        let mut debian = as_root("mmdebstrap");
        debian
            .args(["--quiet", "--variant=essential"])
            .arg(format!("--include={}", PACKAGES.join(",")))
            .arg(format!("--aptopt={}", settings.display()))
            .arg(release()?)
            .arg(self.root())
            .args(package_sources()?);
        println!("making a Debian with {}", PACKAGES.join(", "));
        run_checked(&mut debian)
    }

    fn run_commands(&self) -> Result<()> {
        COMMANDS.iter().try_for_each(|command| {
            println!("in a Debian with {}: {command}", PACKAGES.join(", "));
            run_checked(&mut self.inside(command))
        })
    }

    /// A command at the root of the sources there.
    fn inside(&self, command: &str) -> Command {
        let root = paths::root();
        let sources = self.sources();
        let mut inside = as_root("unshare");
        inside
            .args(["--mount", "--pid", "--fork", "--kill-child"])
            .args(["sh", "-euc", ENTER, "sh"])
            .arg(self.root());
        for (here, there) in [
            (sources.as_path(), root),
            (&self.target, &self.target),
            (&self.cargo_home, &self.cargo_home),
            (&self.rustup_home, &self.rustup_home),
        ] {
            inside.args([here, there]);
        }
        inside.arg("--");
        if let Some(user) = &self.user {
            inside.arg(format!("--userspec={user}"));
        }
        let set = |name: &str, value: &Path| format!("{name}={}", value.display());
        inside
            .arg(self.root())
            .args(["env", "--ignore-environment"])
            .arg(set("--chdir", root))
            .arg(set("CARGO_HOME", &self.cargo_home))
            .arg(set("CARGO_TARGET_DIR", &self.target))
            .arg(set("RUSTUP_HOME", &self.rustup_home))
            .args(["CARGO_NET_OFFLINE=true", "HOME=/tmp"])
            .arg(set("PATH", &self.cargo_home.join("bin")) + ":/usr/bin:/bin")
            .args(command.split(' '));
        inside
    }
}

/// What a command writes, without the end of the line.
fn told(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(paths::root())
        .output()
        .with_context(|| format!("running {program}"))?;
    ensure!(
        output.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let text = String::from_utf8(output.stdout).with_context(|| format!("reading {program}"))?;
    Ok(text.trim_end().to_owned())
}

/// Debian's name of the release that runs here.
fn release() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
    let line = |name| text.lines().find_map(|line: &str| line.strip_prefix(name));
    match (line("ID="), line("VERSION_CODENAME=")) {
        (Some("debian"), Some(name)) => Ok(name.trim_matches('"').to_owned()),
        _ => bail!("this machine runs no Debian, whose package sources could be used"),
    }
}

/// Files in which apt is told where packages are.
fn package_sources() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let list = Path::new(APT).join("sources.list");
    if list.exists() {
        files.push(list);
    }
    let folder = Path::new(APT).join("sources.list.d");
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(files),
        other => other.with_context(|| format!("reading {}", folder.display()))?,
    };
    for entry in entries {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|kind| kind == "list" || kind == "sources")
        {
            files.push(path);
        }
    }
    Ok(files)
}

/// How this machine's apt fetches: proxies above all.
pub(crate) fn apt_settings() -> Result<String> {
    let all = told("apt-config", &["dump"])?;
    let lines = all.lines().filter(|line| line.starts_with("Acquire::"));
    Ok(lines.flat_map(|line| [line, "\n"]).collect())
}

/// Copies what a clone of this work tree would have: the files that git knows,
/// as they are now. With their times, by which cargo tells what has changed.
fn copy_sources(to: &Path) -> Result<()> {
    let known = told("git", &["ls-files", "-z"])?;
    for file in known.split('\0').filter(|file| !file.is_empty()) {
        let (from, to) = (paths::root().join(file), to.join(file));
        let copy = || {
            let time = match fs::metadata(&from) {
                // Not committed yet, but deleted.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                other => other?.modified()?,
            };
            fs::create_dir_all(to.parent().unwrap_or(&to))?;
            fs::copy(&from, &to)?;
            File::options().write(true).open(&to)?.set_modified(time)
        };
        copy().with_context(|| format!("copying {file}"))?;
    }
    Ok(())
}
