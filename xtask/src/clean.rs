// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian systems with few packages, to run commands in.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::arch::Arch;
use crate::process::{as_root, run_checked};
use crate::{debian, paths, process};

/// Mounts directories and enters the root. Arguments: the root, pairs of a directory here and its
/// path there, `--`, the arguments of chroot. The mounts end with the namespace.
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

/// Runs a command with an emulator for programs of another architecture. Arguments: the name of a
/// binfmt_misc format, the line that registers it, the command. If the machine has not registered
/// the emulator, a user namespace with all ids registers it for this command only (Linux 6.7). The
/// ids are written from outside, after the namespace exists.
const EMULATED: &str = r#"
formats=/proc/sys/fs/binfmt_misc
format=$1
line=$2
shift 2
if [ -e "$formats/$format" ]; then exec "$@"; fi
folder=$(mktemp --directory)
trap 'rm -rf "$folder"' EXIT
mkfifo "$folder/mapped"
unshare --user --mount --pid --fork --kill-child sh -euc '
    formats=$0 line=$1 mapped=$2
    shift 2
    read _ <"$mapped"
    mount --make-rprivate /
    mount -t proc proc /proc
    mount -t binfmt_misc binfmt_misc "$formats"
    printf %s "$line" >"$formats/register"
    exec "$@"
' "$formats" "$line" "$folder/mapped" "$@" &
ours=$(readlink /proc/self/ns/user)
while [ "$(readlink /proc/$!/ns/user)" = "$ours" ]; do sleep 0.1; done
for ids in uid_map gid_map; do
    echo "0 0 4294967295" >/proc/$!/$ids
done
echo >"$folder/mapped"
wait $!
"#;

/// A command for root that runs `program` of architecture `arch` and the programs that it starts.
fn root_command(program: &str, arch: Arch) -> Command {
    match arch.binary_format() {
        None => as_root(program),
        Some(format) => {
            let mut command = as_root("sh");
            command.args(["-euc", EMULATED, "sh"]).args(format);
            command.arg(program);
            command
        }
    }
}

/// Makes a Debian `suite` with the essential packages and `packages`: a directory, or an archive if
/// the name of `to` says so. Downloads with this machine's apt settings, such as proxies.
pub(crate) fn make((suite, arch): (&str, Arch), packages: &[&str], to: &Path) -> Result<()> {
    println!(
        "making a Debian {suite} ({arch}) with {}",
        packages.join(", ")
    );
    let settings = paths::target().join("apt.conf");
    let mut config = Command::new("apt-config");
    config.arg("dump");
    let all = process::stdout(&config, debian::LIMIT)?;
    let lines = all.lines().filter(|line| line.starts_with("Acquire::"));
    fs::write(&settings, lines.collect::<Vec<_>>().join("\n"))
        .context("writing settings for apt")?;
    let mut command = root_command("mmdebstrap", arch);
    command
        .args(["--quiet", "--variant=essential", "--mode=root"])
        .arg(format!("--architectures={}", arch.debian()))
        // It would use another program to look for the emulator's registration.
        .arg("--skip=check/qemu")
        // The list needs at least one package; each Debian has dpkg.
        .arg(format!("--include=dpkg,{}", packages.join(",")).trim_end_matches(','))
        .arg(format!("--aptopt={}", settings.display()))
        .arg(suite)
        .arg(to)
        .arg(debian::source(suite, "")?);
    run_checked(&mut command)
}

/// A command that enters `root`, with the first path of each of `mounts` mounted at the second. The
/// caller adds the arguments of chroot after its options.
pub(crate) fn enter(
    (root, arch): (&Path, Arch),
    mounts: &[[&Path; 2]],
    unshare: &[&str],
    chroot: &[String],
) -> Command {
    let mut inside = root_command("unshare", arch);
    inside
        .args(["--mount", "--pid", "--fork", "--kill-child"])
        .args(unshare)
        .args(["sh", "-euc", ENTER, "sh"])
        .arg(root)
        .args(mounts.iter().flatten())
        .arg("--")
        .args(chroot)
        .arg(root);
    inside
}
