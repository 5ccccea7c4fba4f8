// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: llama-cpp-python, with the libraries of its source release, computes
//! with the backend, and writes what it writes without.
//!
//! Its ggml is older than Debian's, with another layout of the backend
//! interface; and its CPU backend is built in, as pip builds it, so that it reads
//! `GGML_BACKEND_PATH` only when it is told to, see
//! `xtask/scripts/llama_cpp_greedy.py`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::model::Workshop;
use super::reference::TIE_NATS;
use super::stats::StatsTable;
use super::stock::{Backend, Stock, THREADS};
use super::texts;
use crate::process::{self, CommandOutput};
use crate::report::{CheckVerdict, external};
use crate::{arch, paths};

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "python";
/// The source release, and what pip must find it to be.
const RELEASE: &str = "0.3.36";
const SHA256: &str = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e";
/// Version of the ggml in that release, as it says itself.
const GGML: &str = "0.25.3";
/// Packages that build the release, and that it imports.
const TOOLS: [&str; 6] = [
    "cmake==4.1.0",
    "ninja==1.13.0",
    "numpy>=1.26,<3",
    "typing-extensions>=4.5,<5",
    "diskcache>=5.6.1,<6",
    "jinja2>=3,<4",
];
/// Its libraries with the CPU backend built in, and nothing else; for any
/// machine of this architecture, since what is built is kept.
const OPTIONS: [&str; 12] = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG",
    "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG",
    "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON",
    "-DBUILD_SHARED_LIBS=ON",
    "-DGGML_NATIVE=OFF",
    "-DLLAMA_BUILD_COMMON=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_TOOLS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_CURL=OFF",
];
const FETCH_LIMIT: Duration = Duration::from_secs(600);
/// Ten minutes of two cores.
const BUILD_LIMIT: Duration = Duration::from_secs(7200);
const RUN_LIMIT: Duration = Duration::from_secs(300);

/// What the script prints, as JSON: the tokens that it wrote, by id.
#[derive(Debug, PartialEq, Deserialize)]
struct Written {
    ggml: String,
    tokens: Vec<u32>,
    /// By how much the best logit leads the second at each step.
    leads: Vec<f64>,
}

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    if !stock.arch().is_native() {
        return Ok(CheckVerdict::Skip("it is built for this machine".into()));
    }
    if let Some(missing) = arch::first_missing(["cc", "c++", "tar"]) {
        return Ok(CheckVerdict::Skip(format!(
            "needs the program {missing}, which this machine does not have"
        )));
    }
    let directory = paths::target().join("llama/python");
    let source = build(&directory)?;
    let (seed, prompt) = texts::PROMPTS[0];
    let model = workshop.tiny_f16(seed)?;
    let run = |backend| -> Result<(Written, CommandOutput)> {
        let mut command = Command::new(python(&directory));
        stock.equip(&mut command, backend);
        command
            .env("PYTHONPATH", &source)
            .arg(paths::root().join("xtask/scripts/llama_cpp_greedy.py"))
            .arg(&model)
            .arg(prompt)
            .args(["--threads", THREADS]);
        let output = process::run(command, RUN_LIMIT)?.checked("llama_cpp_greedy.py")?;
        let written = serde_json::from_slice(&output.stdout).context("reading its tokens")?;
        Ok((written, output))
    };
    let (without, _) = run(Backend::Without)?;
    let (with, output) = run(Backend::With)?;
    ensure!(
        with.ggml == GGML,
        "llama-cpp-python {RELEASE} has ggml {}, not {GGML}",
        with.ggml
    );
    let agreement = compare(&without, &with)?;
    let products = StatsTable::find(&output.stderr)?.offloaded("fp16")?;
    Ok(CheckVerdict::Pass(format!(
        "llama-cpp-python {RELEASE}, ggml {GGML}: {products} products in FP16, {} tokens, {agreement}",
        with.tokens.len()
    )))
}

/// Whether the tokens are the same, at least up to a tie.
fn compare(without: &Written, with: &Written) -> Result<String> {
    ensure!(
        !without.tokens.is_empty() && without.tokens.len() == with.tokens.len(),
        "{} tokens without the backend, {} with it",
        without.tokens.len(),
        with.tokens.len()
    );
    let mut both = without.tokens.iter().zip(&with.tokens);
    let Some(place) = both.position(|(one, other)| one != other) else {
        return Ok("the same".to_owned());
    };
    let lead = without.leads.get(place).copied().unwrap_or(f64::MAX);
    ensure!(
        lead < TIE_NATS,
        "token {place} differs, where the CPU's best logit leads by {lead}"
    );
    Ok(format!(
        "the same up to a tie of {lead:.6} at token {place}"
    ))
}

fn python(directory: &Path) -> PathBuf {
    directory.join("venv/bin/python")
}

/// Fetches and builds it, unless that is done; returns the directory of its
/// Python package.
fn build(directory: &Path) -> Result<PathBuf> {
    let source = directory.join(format!("llama_cpp_python-{RELEASE}"));
    let stamp = directory.join("complete");
    let wanted = [&[RELEASE, SHA256], &TOOLS[..], &OPTIONS[..]]
        .concat()
        .join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|had| had == wanted) {
        return Ok(source);
    }
    if directory.exists() {
        fs::remove_dir_all(directory).context("removing an old build")?;
    }
    fs::create_dir_all(directory).context("making the directory")?;
    fetch(directory)
        .map_err(|error| external(&error))
        .with_context(|| format!("fetching llama-cpp-python {RELEASE}"))?;
    println!("building llama-cpp-python {RELEASE}, for some ten minutes");
    let binaries = directory.join("venv/bin");
    let mut configure = Command::new(binaries.join("cmake"));
    configure
        .current_dir(&source)
        .args(["-S", "vendor/llama.cpp", "-B", "build", "-G", "Ninja"])
        .arg(format!(
            "-DCMAKE_MAKE_PROGRAM={}",
            binaries.join("ninja").display()
        ))
        .args(OPTIONS);
    process::run(configure, BUILD_LIMIT)?.checked("cmake")?;
    let mut make = Command::new(binaries.join("ninja"));
    make.current_dir(&source).args(["-C", "build", "llama"]);
    process::run(make, BUILD_LIMIT)?.checked("ninja")?;
    symlink("../build/bin", source.join("llama_cpp/lib")).context("linking the libraries")?;
    fs::write(&stamp, wanted).context("writing the stamp")?;
    Ok(source)
}

/// Downloads and unpacks the release, and what builds it.
fn fetch(directory: &Path) -> Result<()> {
    let mut create = Command::new("python3");
    create.args(["-m", "venv"]).arg(directory.join("venv"));
    process::run(create, FETCH_LIMIT)?.checked("python3 -m venv")?;
    let pip = |arguments: &[&str]| {
        let mut command = Command::new(python(directory));
        command
            .current_dir(directory)
            .args(["-m", "pip", "--quiet", "--disable-pip-version-check"])
            .args(arguments);
        process::run(command, FETCH_LIMIT)?.checked("pip")
    };
    pip(&[&["install"], &TOOLS[..]].concat())?;
    // pip compares the hash.
    let pinned = format!("llama-cpp-python=={RELEASE} --hash=sha256:{SHA256}\n");
    fs::write(directory.join("pinned.txt"), pinned).context("writing pinned.txt")?;
    println!("fetching llama-cpp-python {RELEASE} (77 MB)");
    let from_source = ["--no-deps", "--no-binary", "llama-cpp-python"];
    pip(&[&["download"], &from_source[..], &["-r", "pinned.txt"]].concat())?;
    let mut unpack = Command::new("tar");
    unpack
        .current_dir(directory)
        .args(["--extract", "--file"])
        .arg(format!("llama_cpp_python-{RELEASE}.tar.gz"));
    process::run(unpack, FETCH_LIMIT)?.checked("tar").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(tokens: &[u32], lead: f64) -> Written {
        Written {
            ggml: GGML.to_owned(),
            tokens: tokens.to_vec(),
            leads: vec![lead; tokens.len()],
        }
    }

    #[test]
    fn only_a_tie_excuses_another_token() {
        let cpu = written(&[5, 6, 7], 0.5);
        assert_eq!(compare(&cpu, &cpu).unwrap(), "the same");
        assert!(compare(&cpu, &written(&[5, 6, 8], 0.5)).is_err());
        assert!(compare(&cpu, &written(&[5, 6], 0.5)).is_err());
        let tied = written(&[5, 6, 7], 0.0005);
        let other = compare(&tied, &written(&[5, 9, 9], 0.5)).unwrap();
        assert!(other.ends_with("tie of 0.000500 at token 1"), "{other}");
    }
}
