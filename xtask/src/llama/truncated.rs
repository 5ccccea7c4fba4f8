// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: with a library that was cut short the program says so and goes on on
//! the CPU, as far as it comes to that.
//!
//! glibc's loader maps what the program headers say without looking at the
//! file's size, so that a library that ends within that is a bus error in the
//! loader, before any code of the library runs. Then there must be no text,
//! and a status that says so.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use anyhow::{Context, Result, ensure};

use super::model::Workshop;
use super::reference::{ReferenceText, generated};
use super::stock::{Backend, Stock};
use super::{attempts, texts};
use crate::process::CommandOutput;
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "truncated-library";
const TOKENS: usize = 8;
/// What ggml says of a library that cannot be loaded, before its path.
const REPORT: &str = "failed to load ";
/// Bytes that are left: nothing, half of the ELF header, and that header with
/// one of the program headers.
const HEADERS: [usize; 3] = [0, 32, 120];
/// The part of the library that is left of it in the last case: less than is
/// mapped, even where most of the file is debugging information.
const LEFT: usize = 16;
/// Number of the signal of a bus error, on x86-64 and arm64.
const SIGBUS: i32 = 7;

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let (seed, prompt) = texts::PROMPTS[0];
    let reference = ReferenceText::new(stock, &workshop.tiny_f16(seed)?, prompt, TOKENS)?;
    let whole = fs::read(stock.library()).context("reading the library")?;
    let path = workshop.path("libggml-rocket-cut.so");
    let place = path.to_string_lossy();
    let run = |length: usize| {
        fs::write(&path, &whole[..length]).context("writing the library that is cut")?;
        // Without ours, as a whole.
        reference.run(Backend::Without, &[], &[("GGML_BACKEND_PATH", &place)])
    };
    let expected = reference.text();
    let run_whole = |length: usize| {
        let is_whole = |output: &CommandOutput| is_whole(output, &expected);
        let output = attempts::until_whole("llama-completion", || run(length), is_whole)?;
        ensure!(
            !output.status.success() || generated(&output) == expected,
            "llama-completion wrote {:?}, without such a library {:?}",
            String::from_utf8_lossy(generated(&output)),
            String::from_utf8_lossy(&expected)
        );
        Ok(output)
    };
    for length in HEADERS {
        run_whole(length)
            .and_then(|output| output.checked("llama-completion"))
            .with_context(|| format!("with the first {length} bytes of the library"))?;
    }
    let output = run_whole(whole.len() / LEFT)?;
    let end = if output.status.success() {
        "goes on".to_owned()
    } else {
        ensure!(
            output.status.signal() == Some(SIGBUS) && generated(&output).is_empty(),
            "{}, after the text {:?}: {}",
            output.status,
            output.text(),
            output.tail()
        );
        format!("{}, without a text", output.status)
    };
    Ok(CheckVerdict::Pass(format!(
        "reported, and the CPU's text, if less than the headers is left; {end}, if a {LEFT}th is"
    )))
}

/// Whether nothing shows that a run lost the end of its log or of its text: a
/// text that does not begin the one that is `expected` is the result.
fn is_whole(output: &CommandOutput, expected: &[u8]) -> bool {
    let text = generated(output);
    let told = output.stderr.contains(REPORT);
    !output.status.success() || !expected.starts_with(text) || told && text == expected
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn only_a_beginning_of_the_text_is_tried_again() {
        let output = |status, stdout: &str, stderr: &str| CommandOutput {
            status: ExitStatus::from_raw(status),
            stdout: stdout.into(),
            stderr: stderr.into(),
        };
        let told = format!("{REPORT}libggml-rocket-cut.so");
        for (output, whole) in [
            (output(0, "a text\n\n", &told), true),
            (output(0, "a text", ""), false),
            (output(0, "a te", &told), false),
            (output(0, "", &told), false),
            (output(0, "a test", &told), true),
            (output(0, "a text and more", ""), true),
            (output(SIGBUS, "", ""), true),
        ] {
            assert_eq!(is_whole(&output, b"a text"), whole, "{output:?}");
        }
    }
}
