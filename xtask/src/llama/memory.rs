// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: valgrind finds no invalid access of the library, and nothing that it
//! lost, in a short run of a stock program.
//!
//! valgrind comes from Debian as the programs do, and nothing is installed. It
//! needs the names of functions within the dynamic loader, which are in a package
//! of their own, beside the loader; and a kernel that keeps its vDSO to itself, see
//! `xtask/scripts/without_auxv.c`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::model::Workshop;
use super::stats::StatsTable;
use super::stock::{Backend, Stock, THREADS};
use super::{attempts, hosts, texts};
use crate::debian::Sysroot;
use crate::process;
use crate::report::{CheckVerdict, external};
use crate::{arch, paths};

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "valgrind";
/// A run took 100 s on a busy machine.
const LIMIT: Duration = Duration::from_secs(1200);
/// The package with the debugging information of the dynamic loader.
const DEBUG_PACKAGE: &str = "libc6-dbg";
/// The package of valgrind; its launcher, and where that finds its tools.
const VALGRIND: &str = "valgrind";
const LAUNCHER: &str = "usr/bin/valgrind.bin";
const TOOLS: &str = "usr/libexec/valgrind";
/// Layers of the model.
const LAYERS: u32 = 3;
/// What valgrind also counts as an error, but what is only said to be pointed
/// into, or still pointed to.
const HARMLESS: [&str; 2] = ["Leak_PossiblyLost", "Leak_StillReachable"];

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    if !stock.arch().is_native() {
        return Ok(CheckVerdict::Skip(
            "valgrind is for this machine's own programs".into(),
        ));
    }
    if let Some(missing) = arch::first_missing(["cc"]) {
        return Ok(CheckVerdict::Skip(format!(
            "needs the program {missing}, which this machine does not have"
        )));
    }
    let sysroot = fetch(stock)?;
    name_functions(stock, &sysroot)?;
    let model = workshop.tiny_layers_f16(LAYERS)?;
    let filter = hosts::compile(stock.arch(), "without_auxv")?;
    let report = workshop.path("valgrind.xml");
    let (_, prompt) = texts::PROMPTS[0];
    let run = || {
        let mut program = stock.command("llama-completion", Backend::With)?;
        program
            .arg("-m")
            .arg(&model)
            .args(["-p", prompt, "-n", "2", "-c", "128", "--temp", "0"])
            .args(["-no-cnv", "--no-warmup", "-t", THREADS, "-tb", THREADS]);
        let command = under_valgrind(&sysroot, stock, &filter, &report, &program);
        process::run(command, LIMIT)?.checked("valgrind")
    };
    let output = attempts::until_whole("llama-completion", run, |output| {
        StatsTable::find(&output.stderr).is_ok()
    })?;
    let products = StatsTable::find(&output.stderr)?.offloaded("fp16")?;
    let text = fs::read_to_string(&report).context("reading valgrind's report")?;
    let library = stock.library().file_name().unwrap_or_default();
    let others = judge(&text, &library.to_string_lossy())?;
    Ok(CheckVerdict::Pass(format!(
        "{products} products in FP16, no invalid access with the library in its stack and nothing \
         lost that it allocated; {others} findings elsewhere"
    )))
}

/// valgrind, and the debugging information.
fn fetch(stock: &Stock) -> Result<Sysroot> {
    let suite = stock.suite();
    let directory = paths::target().join(format!("llama/{suite}-{}-debug", stock.arch()));
    let packages = [DEBUG_PACKAGE, VALGRIND];
    let sysroot = Sysroot::prepare(&directory, &packages, suite, stock.arch(), false)?;
    for part in [LAUNCHER, TOOLS] {
        if !sysroot.root().join(part).exists() {
            return Err(external(&anyhow!("the package {VALGRIND} has no {part}")));
        }
    }
    Ok(sysroot)
}

/// Puts the loader's debugging information where valgrind looks for it.
fn name_functions(stock: &Stock, sysroot: &Sysroot) -> Result<()> {
    let loader = fs::read(stock.loader()).context("reading the loader")?;
    let (name, from) = debug_file(&sysroot.root().join("usr/lib/debug/.build-id"), &loader)?
        .with_context(|| format!("{DEBUG_PACKAGE} is not of the loader's version"))
        .map_err(|error| external(&error))?;
    let place = stock.loader().with_file_name(".debug");
    fs::create_dir_all(&place).context("making the directory .debug")?;
    fs::copy(from, place.join(name)).context("copying the debugging information")?;
    Ok(())
}

/// The file for the build ID that is somewhere in `program`: its name, which
/// is that ID but for the first byte, and its place, in the directory that is
/// named by that byte.
fn debug_file(directory: &Path, program: &[u8]) -> Result<Option<(String, PathBuf)>> {
    for first in fs::read_dir(directory).context("reading .build-id")? {
        let first = first?;
        for file in fs::read_dir(first.path())? {
            let file = file?;
            let name = file.file_name().to_string_lossy().into_owned();
            let rest = name.trim_end_matches(".debug");
            let id = bytes(&format!("{}{rest}", first.file_name().to_string_lossy()));
            let found = id.is_some_and(|id| program.windows(id.len()).any(|window| window == id));
            if found {
                return Ok(Some((name, file.path())));
            }
        }
    }
    Ok(None)
}

/// Bytes from hexadecimal digits; none if there are none or others.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    bytes.filter(|bytes| !bytes.is_empty())
}

/// `program` with its arguments and environment under valgrind, whose launcher
/// takes the loader and the C library that it was built for.
fn under_valgrind(
    sysroot: &Sysroot,
    stock: &Stock,
    filter: &Path,
    report: &Path,
    program: &Command,
) -> Command {
    let mut command = Command::new(filter);
    command
        .arg(stock.loader())
        .arg("--library-path")
        .arg(sysroot.libraries())
        .arg(sysroot.root().join(LAUNCHER))
        .env("VALGRIND_LIB", sysroot.root().join(TOOLS))
        .args(["--leak-check=full", "--num-callers=40"])
        .args(["--show-leak-kinds=definite", "--xml=yes"])
        .arg(format!("--xml-file={}", report.display()))
        .arg(program.get_program())
        .args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(directory) = program.get_current_dir() {
        command.current_dir(directory);
    }
    command
}

/// Judges a report: the number of findings that are not of `library`.
fn judge(report: &str, library: &str) -> Result<usize> {
    ensure!(
        report.trim_end().ends_with("</valgrindoutput>"),
        "valgrind's report has no end"
    );
    let library = format!("/{library}</obj>");
    let mut others = 0;
    for error in report.split("<error>").skip(1) {
        let (error, _) = error
            .split_once("</error>")
            .context("a finding without an end")?;
        let kind = between(error, "<kind>", "</kind>").context("a finding of no kind")?;
        if HARMLESS.contains(&kind) {
            continue;
        }
        if error.contains(&library) {
            return Err(anyhow!("valgrind finds {kind}:\n{}", stack(error)));
        }
        others += 1;
    }
    Ok(others)
}

/// The functions of a finding, innermost first.
fn stack(error: &str) -> String {
    let frames = error.split("<frame>").skip(1);
    let lines = frames.map(|frame| between(frame, "<fn>", "</fn>").unwrap_or("?"));
    lines.collect::<Vec<_>>().join("\n")
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kind: &str, object: &str) -> String {
        format!(
            "<valgrindoutput>\n<error>\n<kind>{kind}</kind>\n<stack>\n<frame><obj>/x/libc.so</obj>\
             <fn>malloc</fn></frame>\n<frame><obj>{object}</obj><fn>pack</fn></frame>\n</stack>\n\
             </error>\n</valgrindoutput>\n"
        )
    }

    #[test]
    fn findings_of_the_library_are_told() {
        let ours = "/y/libggml-rocket.so";
        for kind in ["InvalidRead", "UninitCondition", "Leak_DefinitelyLost"] {
            let error = judge(&report(kind, ours), "libggml-rocket.so").unwrap_err();
            assert!(error.to_string().contains(kind), "{error}");
            assert!(error.to_string().contains("malloc\npack"), "{error}");
            let other = report(kind, "/y/libggml-base.so");
            assert_eq!(judge(&other, "libggml-rocket.so").unwrap(), 1);
        }
        let possible = report("Leak_PossiblyLost", ours);
        assert_eq!(judge(&possible, "libggml-rocket.so").unwrap(), 0);
        assert!(judge(&possible[..80], "libggml-rocket.so").is_err());
    }

    #[test]
    fn digits_are_read() {
        assert_eq!(bytes("0a8e"), Some(vec![0x0a, 0x8e]));
        assert_eq!(bytes(""), None);
        assert_eq!(bytes("zz"), None);
    }
}
