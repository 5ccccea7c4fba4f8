// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the CPU's own attention with the user's llama-bench: attention is what a long prompt
//! takes longer for than short ones of as many tokens together.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use npu_offload::ModelShape;
use serde::Deserialize;

use super::GIGA;

/// llama.cpp's benchmark, by its name in the PATH.
const LLAMA_BENCH: &str = "llama-bench";

/// Tokens of the prompts, in the order of llama-bench's option.
const PROMPTS: [usize; 2] = [512, 2048];

/// A measurement of llama-bench, as it prints it in JSON. Other fields are of no interest.
#[derive(Deserialize)]
struct BenchRow {
    n_prompt: usize,
    /// Mean nanoseconds of a run.
    avg_ns: u64,
}

/// Multiply-adds that the CPU's attention computes a second, with this model.
pub(crate) fn measure(file: &Path, shape: &ModelShape) -> anyhow::Result<u64> {
    measure_with(LLAMA_BENCH.as_ref(), file, shape)
}

fn measure_with(program: &OsStr, file: &Path, shape: &ModelShape) -> anyhow::Result<u64> {
    let prompts = PROMPTS.map(|tokens| tokens.to_string()).join(",");
    let mut command = Command::new(program);
    command.arg("-m").arg(file);
    command.args(["-p", &prompts, "-n", "0", "-r", "3", "-o", "json"]);
    // The CPU alone, also where the backend is installed.
    command.env("GGML_ROCKET_DEVICE", "none");
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let run = command.output();
    let run =
        run.context("cannot run llama-bench; it comes with llama.cpp, and must be in PATH")?;
    ensure!(run.status.success(), "llama-bench failed: {}", run.status);
    let rows: Result<Vec<BenchRow>, _> = serde_json::from_slice(&run.stdout);
    rate(&rows.context("llama-bench printed no JSON")?, shape)
}

fn rate(rows: &[BenchRow], shape: &ModelShape) -> anyhow::Result<u64> {
    let [short, long] = PROMPTS.map(|tokens| {
        let row = rows.iter().find(|row| row.n_prompt == tokens);
        let row = row.with_context(|| format!("llama-bench measured no prompt of {tokens} tokens"));
        Ok::<_, anyhow::Error>((row?.avg_ns, shape.attention_macs(0, tokens)))
    });
    let times = (PROMPTS[1] / PROMPTS[0]) as u64;
    let ((short_ns, short_macs), (long_ns, long_macs)) = (short?, long?);
    let more_ns = long_ns.saturating_sub(short_ns.saturating_mul(times));
    let more_macs = long_macs.saturating_sub(short_macs.saturating_mul(times));
    ensure!(
        more_ns > 0 && more_macs > 0,
        "a token of the longer prompt took no longer; stop other programs and try again"
    );
    Ok((more_macs as f64 * GIGA / more_ns as f64) as u64)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SHAPE: ModelShape = ModelShape::LLAMA32_1B;

    fn bench(script: &str) -> anyhow::Result<u64> {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("llama-bench");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        measure_with(program.as_os_str(), Path::new("m.gguf"), &SHAPE)
    }

    /// Each token takes 10 ms, and attention runs at 22 billion multiply-adds a second.
    #[test]
    fn the_rate_is_that_of_attention_alone() {
        let ns = PROMPTS.map(|tokens| {
            let attention_ns = SHAPE.attention_macs(0, tokens) as f64 / 22.0;
            tokens as u64 * 10_000_000 + attention_ns as u64
        });
        let [short, long] = [0, 1].map(|at| {
            format!(
                r#"{{"n_prompt": {}, "n_gen": 0, "avg_ns": {}}}"#,
                PROMPTS[at], ns[at]
            )
        });
        let seen = bench(&format!(
            "test \"$*\" = '-m m.gguf -p 512,2048 -n 0 -r 3 -o json' || exit 1\n\
             test \"$GGML_ROCKET_DEVICE\" = none || exit 2\n\
             echo '[{short},{long}]'"
        ));
        let off = seen.unwrap() as f64 / 22e9 - 1.0;
        assert!(off.abs() < 1e-6, "{off}");
    }

    #[test]
    fn runs_that_measure_nothing_are_errors() {
        let row = |tokens, ns| format!(r#"{{"n_prompt": {tokens}, "avg_ns": {ns}}}"#);
        let faster = format!("echo '[{},{}]'", row(512, 100), row(2048, 400));
        let missing = format!("echo '[{}]'", row(512, 100));
        for (script, said) in [
            ("exit 3", "exit status: 3"),
            ("echo no", "no JSON"),
            (&missing, "no prompt of 2048"),
            (&faster, "took no longer"),
        ] {
            let error = format!("{:#}", bench(script).unwrap_err());
            assert!(error.contains(said), "{error}");
        }
        let missing = measure_with("/nonexistent".as_ref(), Path::new("m.gguf"), &SHAPE);
        assert!(missing.unwrap_err().to_string().contains("in PATH"));
    }
}
