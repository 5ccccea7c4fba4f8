// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the packages and the archive.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::transcript;
use crate::arch::Arch;
use crate::process::run_checked;
use crate::{llama, paths, process};

/// Checks that `make` makes the same `files` again.
pub(super) fn same_again(
    files: &[PathBuf],
    make: impl FnOnce(&Path) -> Result<Vec<PathBuf>>,
) -> Result<()> {
    let folder = paths::target().join("packaging/again");
    fs::create_dir_all(&folder).context("making a directory")?;
    for (first, second) in files.iter().zip(make(&folder)?) {
        let same = fs::read(first)? == fs::read(&second)?;
        ensure!(same, "two builds of {} differ", first.display());
    }
    fs::remove_dir_all(&folder).context("removing the second build")?;
    println!(
        "PASS reproducible: two builds of {} files are equal",
        files.len()
    );
    Ok(())
}

/// Installs, uses and removes the packages in the oldest supported Debian, and in one whose
/// llama.cpp and libwhisper find the backend. For another architecture everything runs under an emulator.
pub(super) fn packages(packages: &[PathBuf], arch: Arch) -> Result<()> {
    let folder = paths::target().join("packaging/files");
    fs::create_dir_all(&folder).context("making a directory")?;
    let client = folder.join("whisper_logits");
    let mut compile = Command::new(arch.compiler());
    compile
        .arg(paths::root().join("tests/llama/c/whisper_logits.c"))
        .args(["-O1", "-ldl", "-lm", "-o"]);
    run_checked(compile.arg(&client))?;
    let files = [
        (
            llama::model("gguf_tiny.py", "tiny-1-f16.gguf")?,
            "tiny.gguf",
        ),
        (
            llama::model("ggml_whisper.py", "whisper.bin")?,
            "whisper.bin",
        ),
        (client, "whisper_logits"),
    ];
    transcript::check("bookworm", ("bookworm", arch), &[], packages, &files)?;
    let users = ["llama.cpp-tools", "libwhisper1"];
    transcript::check("sid", ("sid", arch), &users, packages, &files)
}

/// Runs the self-test and some of the driver suite of the archive on the model.
pub(super) fn static_archive(archive: &Path) -> Result<()> {
    let root = paths::target().join("packaging/static");
    fs::create_dir_all(&root).context("making a directory")?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--strip-components=1", "--file"])
        .arg(archive);
    run_checked(tar.arg("--directory").arg(&root))?;
    for (program, arguments, told) in [
        ("npu-probe", "--device model", "PASS "),
        (
            "rocket-conformance",
            "--device model version submit",
            " 0 failed",
        ),
    ] {
        let program = root.join(program);
        let mut command = Arch::Arm64.run(&program);
        command.args(arguments.split(' '));
        let text = process::stdout(&command, process::LIMIT)
            .with_context(|| format!("running {}", program.display()))?;
        ensure!(text.contains(told), "{} says: {text}", program.display());
        println!("PASS {} runs on aarch64", program.display());
    }
    Ok(())
}
