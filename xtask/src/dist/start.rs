// SPDX-License-Identifier: MIT OR Apache-2.0
//! Follows docs/start.md in a clean Debian 12: runs the commands of its code blocks that begin with
//! [`MARK`], from the packages to tokens on the software model.
//!
//! llama.cpp's sources come from a source package of PyPI, since the Debian has no network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::transcript::CleanDebian;
use crate::arch::Arch;
use crate::process::{external, run_checked};
use crate::{debian, paths, process, python};

/// The first line of a code block that is run here.
const MARK: &str = "# checked";
/// What Debian 12 needs to build llama.cpp: the page's `apt install`.
const BUILDERS: [&str; 3] = ["build-essential", "cmake", "git"];
/// A pip requirement with a hash: the package that contains llama.cpp's sources.
const SOURCE: &str = "tests/llama/llama-cpp-python.txt";

/// Lines of output that are shown after a failure.
const LAST_LINES: usize = 40;

/// Replaces what needs a network, or a board. Root needs no sudo. The packages of `apt` are there;
/// files are those for this architecture. `git` gets the sources from a directory.
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
export GGML_ROCKET_DEVICE=model
cd /root
"#;

/// Builds llama.cpp, installs `packages`, and runs a prompt, as the page says.
pub(super) fn follow(packages: &[PathBuf]) -> Result<()> {
    let page = paths::text(&paths::root().join("docs/start.md"))?;
    let commands = checked_blocks(&page);
    ensure!(!commands.is_empty(), "docs/start.md has no checked block");
    let sources = sources()?;
    let debian = CleanDebian::prepare(("bookworm", Arch::native()), &BUILDERS, packages, &[])?;
    let files = debian.files();
    let mut copy = Command::new("cp");
    run_checked(copy.arg("-r").arg(&sources).arg(files.join("llama.cpp")))?;
    fs::write(
        files.join("start.sh"),
        format!("{INSTEAD}set -x\n{commands}"),
    )
    .context("writing the script")?;
    let mut inside = debian.enter();
    inside.args(["sh", "-euc", "exec >/files/output 2>&1; . /files/start.sh"]);
    println!("following docs/start.md in a clean Debian 12; llama.cpp compiles for many minutes");
    let outcome = run_checked(&mut inside);
    let output = fs::read(files.join("output")).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    debian.remove()?;
    if outcome.is_err() {
        let lines: Vec<&str> = output.lines().collect();
        println!(
            "{}",
            lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
        );
    }
    outcome?;
    let matmuls = output
        .lines()
        .filter(|line| line.contains("matmuls computed in"))
        .filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok());
    ensure!(
        matmuls.sum::<u64>() > 0,
        "llama.cpp computed no matmul on the software model"
    );
    println!("PASS docs/start.md in a clean Debian 12: llama.cpp from source, and tokens");
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
