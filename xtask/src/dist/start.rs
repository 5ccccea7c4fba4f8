// SPDX-License-Identifier: MIT OR Apache-2.0
//! Follows docs/start.md in a clean Debian 12: runs the commands of its code blocks that begin with
//! [`MARK`], from the packages to tokens on the software model.
//!
//! llama.cpp's sources come from a source package of PyPI, since the Debian has no network. A Debian
//! of another architecture is emulated, but for its compiler: a cross compiler that this machine runs
//! itself, without which llama.cpp would take hours.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::transcript::{self, CleanDebian};
use crate::arch::Arch;
use crate::debian::{self, Sysroot};
use crate::process::{external, run_checked};
use crate::{paths, process, python};

/// The oldest Debian that packages are for.
const DEBIAN: &str = "bookworm";
/// The first line of a code block that is run here.
const MARK: &str = "# checked";
/// What Debian 12 needs to build llama.cpp: the page's `apt install`.
const BUILDERS: [&str; 3] = ["build-essential", "cmake", "git"];
/// The same for an emulated Debian, whose compiler comes from this machine's architecture.
const CROSS_BUILDERS: [&str; 4] = ["make", "libgomp1", "cmake", "git"];
/// A pip requirement with a hash: the package that contains llama.cpp's sources.
const SOURCE: &str = "tests/llama/llama-cpp-python.txt";
/// The beginning of the model's answer, which the page quotes.
const ANSWER: &str = "Mia could not find her red ball.";

/// Lines of output that are shown after a failure.
const LAST_LINES: usize = 40;
/// Time limit of all commands, most of which compile llama.cpp.
const LIMIT: Duration = Duration::from_secs(3 * 60 * 60);

/// Replaces what needs a network, or a board. Root needs no sudo. The packages of `apt` are there;
/// files are those for this architecture. `git` gets the sources from a directory. A cross compiler
/// gets the names of Debian's own. `doctor` finds no board, which its exit status says.
const INSTEAD: &str = r#"
sudo() { "$@"; }
apt() {
    for file; do
        case $file in
        ./*.deb) dpkg --install "/packages/$(basename "$file" _arm64.deb)_$(dpkg --print-architecture).deb" ;;
        esac
    done
}
git() { cp -r /files/llama.cpp llama.cpp; }
if ! command -v cc >/dev/null; then
    for tool in /usr/bin/*-linux-gnu-*; do
        ln -s "$tool" "/usr/local/bin/${tool##*-linux-gnu-}"
    done
    ln -s gcc /usr/local/bin/cc
    ln -s g++ /usr/local/bin/c++
fi
cat >/usr/local/bin/npu-probe <<'END'
/usr/bin/npu-probe "$@" || [ "$1 $?" = "doctor 3" ]
END
chmod +x /usr/local/bin/npu-probe
export PATH=/usr/local/bin:$PATH ROCKET_DEVICE=model GGML_ROCKET_DEVICE=model
cd /root
"#;

/// Builds llama.cpp, installs `packages` for `arch`, and runs a prompt, as the page says.
pub(super) fn follow(packages: &[PathBuf], arch: Arch) -> Result<()> {
    let page = paths::text(&paths::root().join("docs/start.md"))?;
    let commands = checked_blocks(&page);
    ensure!(!commands.is_empty(), "docs/start.md has no checked block");
    ensure!(page.contains(ANSWER), "docs/start.md quotes another answer");
    let sources = sources()?;
    let builders: &[&str] = if arch.is_native() {
        &BUILDERS
    } else {
        &CROSS_BUILDERS
    };
    let debian = CleanDebian::prepare((DEBIAN, arch), builders, packages, &[])?;
    if !arch.is_native() {
        let compiler = format!("g++-{}", arch.triplet().replace('_', "-"));
        let folder = std::path::absolute(paths::target().join("packaging/compiler"))?;
        let native = Arch::native();
        let compiler = Sysroot::prepare(&folder, &[&compiler], DEBIAN, native)?;
        debian.add(compiler.root())?;
    }
    let files = debian.files();
    let mut copy = Command::new("cp");
    run_checked(copy.arg("-r").arg(&sources).arg(files.join("llama.cpp")))?;
    for (name, text) in [("instead.sh", INSTEAD), ("start.sh", &commands)] {
        fs::write(files.join(name), text).with_context(|| format!("writing {name}"))?;
    }
    let mut inside = debian.enter();
    let script = "exec 2>&1; . /files/instead.sh; set -v; . /files/start.sh";
    inside.args(["sh", "-euc", script]);
    println!(
        "following docs/start.md in a clean Debian 12 ({arch}); llama.cpp compiles for many minutes"
    );
    let (status, lines, whole) = transcript::run(&inside, LIMIT)?;
    debian.remove()?;
    transcript::print_times(&commands, &lines, whole);
    let output: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    let told = paths::target().join(format!("packaging/start-{arch}.txt"));
    fs::write(&told, output.concat()).context("writing the transcript")?;
    if !status.success() {
        print!(
            "{}",
            output[output.len().saturating_sub(LAST_LINES)..].concat()
        );
    }
    ensure!(
        status.success(),
        "the commands of docs/start.md ended with {status}"
    );
    let matmuls = output
        .iter()
        .filter(|line| line.contains("matmuls computed in"))
        .filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok());
    let matmuls: u64 = matmuls.sum();
    ensure!(
        matmuls > 0,
        "llama.cpp computed no matmul on the software model"
    );
    ensure!(
        output.concat().contains(ANSWER),
        "the story does not go on with '{ANSWER}': {}",
        told.display()
    );
    println!("PASS docs/start.md in a clean Debian 12 ({arch}): llama.cpp from source, tokens");
    println!("RESULT {arch}: a story, with {matmuls} matmuls on the model");
    Ok(())
}

/// The commands of the page's code blocks that begin with [`MARK`].
fn checked_blocks(page: &str) -> String {
    let mut commands = String::new();
    for block in page.split("```sh\n").skip(1) {
        let code = block.split("```").next().unwrap_or_default();
        if let Some(code) = code.strip_prefix(MARK) {
            commands += code.split_once('\n').map_or("", |(_, rest)| rest);
        }
    }
    commands
}

/// Fetches and unpacks llama.cpp's sources, unless they are there.
fn sources() -> Result<PathBuf> {
    let folder = std::path::absolute(paths::target().join("packaging/llama.cpp"))?;
    let requirement = paths::root().join(SOURCE);
    let wanted = paths::text(&requirement)?;
    let stamp = folder.join("complete");
    let sources = folder.join("sources/vendor/llama.cpp");
    if fs::read_to_string(&stamp).is_ok_and(|had| had == wanted) {
        return Ok(sources);
    }
    println!("fetching the sources of llama.cpp (77 MB)");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("sources")).context("making a directory")?;
    let mut pip = python::command("llama")?;
    pip.args([
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "download",
    ])
    .args(["--no-deps", "--no-binary", "llama-cpp-python", "--dest"])
    .arg(&folder)
    .arg("--requirement")
    .arg(&requirement);
    process::run(&pip, debian::FETCH_LIMIT)
        .and_then(|output| output.checked("pip download"))
        .map_err(|error| external(&error))?;
    let archive = paths::files(&folder, &["gz"])?;
    let archive: &Path = archive.first().context("pip fetched no archive")?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--strip-components=1", "--file"])
        .arg(archive)
        .arg("--directory")
        .arg(folder.join("sources"));
    run_checked(&mut tar)?;
    fs::write(&stamp, wanted).context("writing the stamp")?;
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_blocks_of_a_page_are_commands() {
        let page =
            "text\n```sh\n# checked: in CI\na b\n```\n```sh\nc\n```\n```sh\n# checked\nd\n```\n";
        assert_eq!(checked_blocks(page), "a b\nd\n");
    }
}
