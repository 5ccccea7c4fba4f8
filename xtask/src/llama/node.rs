// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: node-llama-cpp, as npm has it and under a stock node, writes the same
//! tokens with the backend and without. Nothing of it is changed: it loads what
//! `GGML_BACKEND_PATH` names as llama.cpp's own programs do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::model::{ModelRecipe, Workshop};
use super::stats::StatsTable;
use super::stock::{Backend, Stock, THREADS};
use super::{hosts, texts};
use crate::process::{self, CommandOutput};
use crate::report::{CheckVerdict, external};
use crate::{arch, paths};

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "node";
/// The release of node-llama-cpp.
const RELEASE: &str = "3.22.1";
/// The first node that it runs under.
const LEAST_NODE: u32 = 20;
const SCRIPT: &str = "node_greedy.mjs";
const TOKENS: &str = "16";
const INSTALL_LIMIT: Duration = Duration::from_secs(600);
const RUN_LIMIT: Duration = Duration::from_secs(300);

/// What the script prints, as JSON: the tokens that it wrote, by id.
#[derive(Debug, PartialEq, Deserialize)]
struct Written {
    prompt: usize,
    tokens: Vec<u32>,
}

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    if !stock.arch().is_native() {
        return Ok(CheckVerdict::Skip("node is this machine's".into()));
    }
    if let Some(missing) = arch::first_missing(["node", "npm"]) {
        return Ok(CheckVerdict::Skip(format!(
            "needs the program {missing}, which this machine does not have"
        )));
    }
    let mut asked = Command::new("node");
    asked.arg("--version");
    let version = process::run(asked, RUN_LIMIT)?.checked("node")?.text();
    if major(&version).is_none_or(|major| major < LEAST_NODE) {
        return Ok(CheckVerdict::Skip(format!(
            "needs node {LEAST_NODE} or later, and this machine has {}",
            version.trim()
        )));
    }
    let directory = install(stock)?;
    let model = workshop.cook(ModelRecipe::PLAIN)?;
    let run = |backend| -> Result<(Written, CommandOutput)> {
        let (_, prompt) = texts::PROMPTS[0];
        let mut command = Command::new("node");
        stock.equip(&mut command, backend);
        command
            .current_dir(&directory)
            .arg(SCRIPT)
            .arg(&model)
            .args([prompt, TOKENS, THREADS]);
        let output = process::run(command, RUN_LIMIT)?.checked(SCRIPT)?;
        Ok((parse(&output.text())?, output))
    };
    let (without, _) = run(Backend::Without)?;
    let (with, output) = run(Backend::With)?;
    ensure!(
        !without.tokens.is_empty() && with == without,
        "{without:?} without the backend, {with:?} with it"
    );
    let products = StatsTable::find(&output.stderr)?.offloaded("fp16")?;
    Ok(CheckVerdict::Pass(format!(
        "node-llama-cpp {RELEASE} under node {}: {products} products in FP16, the same {} tokens",
        version.trim(),
        with.tokens.len()
    )))
}

/// The number before the first dot of `v20.1.2`.
fn major(version: &str) -> Option<u32> {
    let (major, _) = version.strip_prefix('v')?.split_once('.')?;
    major.parse().ok()
}

/// Of several lines the one that is JSON: others may be the log's.
fn parse(text: &str) -> Result<Written> {
    let line = text.lines().rev().find(|line| line.starts_with('{'));
    serde_json::from_str(line.context("the script printed no tokens")?)
        .context("reading its tokens")
}

/// Installs it into a directory of its own, unless it is there, with the script
/// beside it, which node lets use only what is installed there.
fn install(stock: &Stock) -> Result<PathBuf> {
    let directory = paths::target().join(format!("llama/node-{RELEASE}"));
    if !directory.join("complete").exists() {
        fs::create_dir_all(&directory).context("making the directory")?;
        // npm puts things where it finds a package.
        fs::write(directory.join("package.json"), r#"{"private":true}"#)?;
        download(&directory, &hosts::node_binaries(stock.arch(), RELEASE))
            .map_err(|error| external(&error))
            .with_context(|| format!("installing node-llama-cpp {RELEASE}"))?;
        fs::write(directory.join("complete"), "")?;
    }
    let script = paths::root().join("xtask/scripts").join(SCRIPT);
    fs::copy(script, directory.join(SCRIPT)).context("copying the script")?;
    Ok(directory)
}

/// Asks npm for the package and its binaries for this machine. Those for others,
/// and for graphics cards, are options of it, and some 600 MB.
fn download(directory: &Path, binaries: &str) -> Result<()> {
    println!("installing node-llama-cpp {RELEASE} through npm");
    let mut npm = Command::new("npm");
    npm.current_dir(directory)
        .args(["install", "--silent", "--no-audit", "--no-fund"])
        .args(["--ignore-scripts", "--omit=dev", "--omit=optional"])
        .arg(format!("node-llama-cpp@{RELEASE}"))
        .arg(binaries);
    process::run(npm, INSTALL_LIMIT)?.checked("npm install")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_tokens_are_read() {
        assert_eq!(major("v20.20.2\n"), Some(20));
        assert_eq!(major("20.1"), None);
        let text = "[node-llama-cpp] a log\n{\"prompt\":88,\"tokens\":[3,4]}\n";
        let expected = Written {
            prompt: 88,
            tokens: vec![3, 4],
        };
        assert_eq!(parse(text).unwrap(), expected);
        assert!(parse("[node-llama-cpp] a log\n").is_err());
    }
}
