// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: where the backend cannot serve, it says why in one line, and the
//! program does its work on the CPU.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rocket_uapi::Device;

use super::model::Workshop;
use super::stats::StatsTable;
use super::stock::{Backend, Stock, THREADS};
use crate::process::{self, CommandOutput};
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "refusals";
const LIMIT: Duration = Duration::from_secs(120);
/// The program loses the end of its output now and then, with status 0; on a
/// busy machine in most runs.
const ATTEMPTS: usize = 12;

/// The function by which the backend recognises the newest layout that it
/// speaks, and a name of the same length that no ggml exports.
const PROBE: &[u8] = b"ggml_backend_buft_alloc_buffer_n\0";
const BLIND_PROBE: &[u8] = b"ggml_backend_buft_alloc_buffer_?\0";

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let model = workshop.tiny_f16(1)?;
    let model = model.to_string_lossy();
    let run = |environment: &[(&str, &str)], backend| -> Result<CommandOutput> {
        let mut command = stock.command("llama-completion", backend)?;
        command
            .args(["-m", &*model, "-p", "Hello", "-n", "8", "--temp", "0"])
            .args(["--ignore-eos", "-no-cnv", "-t", THREADS])
            .envs(environment.iter().copied());
        process::run(command, LIMIT)?.checked("llama-completion")
    };
    // The longest: any may have lost its end, and two alike.
    let mut expected = Vec::new();
    for _ in 0..ATTEMPTS {
        let text = run(&[], Backend::Without)?.stdout;
        let (short, long) = if text.len() < expected.len() {
            (text, expected)
        } else {
            (expected, text)
        };
        ensure!(
            long.starts_with(&short),
            "the CPU's text changes from run to run"
        );
        expected = long;
    }

    let blind = blind_library(stock, workshop)?;
    let blind = blind.to_string_lossy();
    let mut cases = vec![
        (
            "a ggml of another layout",
            [("GGML_BACKEND_PATH", &*blind)],
            "lays out its backend interface in a way that this backend does not know",
        ),
        (
            "a device that is not there",
            [("GGML_ROCKET_DEVICE", "/dev/accel/no-such-device")],
            "/dev/accel/no-such-device",
        ),
    ];
    if Device::discover().is_err() {
        let auto = [("GGML_ROCKET_DEVICE", "auto")];
        cases.push(("a machine without an NPU", auto, "GGML_ROCKET_DEVICE=model"));
    }
    for (what, environment, line) in &cases {
        let mut seen = Ok(());
        for _ in 0..ATTEMPTS {
            let output = run(environment, Backend::With)?;
            // The end may be lost; what is there is the CPU's.
            ensure!(
                expected.starts_with(&output.stdout),
                "{what}: the text is not the CPU's"
            );
            seen = inspect(&output, &expected, line).context(*what);
            if seen.is_ok() {
                break;
            }
        }
        seen?;
    }
    let names: Vec<&str> = cases.iter().map(|(what, ..)| *what).collect();
    Ok(CheckVerdict::Pass(format!(
        "one clear line and the CPU's text for {}",
        names.join(" and ")
    )))
}

/// Whether a run refused our backend in one line with `line` in it, and did
/// its work.
fn inspect(output: &CommandOutput, expected: &[u8], line: &str) -> Result<()> {
    let said: Vec<&str> = output
        .stderr
        .lines()
        .filter(|text| text.contains("ROCKET: ") && text.contains("without the NPU"))
        .collect();
    ensure!(
        said.len() == 1 && said[0].contains(line),
        "expected one line with {line:?}, got {said:?}"
    );
    ensure!(
        StatsTable::find(&output.stderr).is_err(),
        "the backend was used all the same"
    );
    ensure!(output.stdout == expected, "the text is not the CPU's");
    Ok(())
}

/// A copy of the library that cannot see the function it looks for, so that
/// it takes the present ggml for one of a layout that nobody knows.
fn blind_library(stock: &Stock, workshop: &Workshop) -> Result<PathBuf> {
    let mut bytes = fs::read(stock.library()).context("reading the library")?;
    let places: Vec<usize> = bytes
        .windows(PROBE.len())
        .enumerate()
        .filter_map(|(place, window)| (window == PROBE).then_some(place))
        .collect();
    ensure!(
        places.len() == 1,
        "the library contains {} times the name that it probes for",
        places.len()
    );
    bytes[places[0]..places[0] + BLIND_PROBE.len()].copy_from_slice(BLIND_PROBE);
    let path = workshop.path("libggml-rocket-blind.so");
    fs::write(&path, bytes).context("writing the changed library")?;
    Ok(path)
}
