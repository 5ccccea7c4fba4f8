// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask demo`: see it work, on any machine.
//!
//! Fetches Debian's llama.cpp, makes a tiny model, and has the stock
//! llama-completion go on from a prompt twice: as it comes, and with our
//! backend loaded.

use anyhow::Result;

use super::model::Workshop;
use super::stock::{LlamaArgs, Stock};
use super::texts;
use crate::build::{self, CargoProfile};

/// Runs it; an error if the texts differ, or nothing was offloaded.
pub(crate) fn run(args: &LlamaArgs) -> Result<()> {
    let stock = Stock::prepare(args, build::backend(args.arch, CargoProfile::Release)?)?;
    let workshop = Workshop::prepare()?;
    let (seed, prompt) = texts::PROMPTS[0];
    println!(
        "\nllama.cpp: Debian {} as it comes, ggml {}. Model: 4 layers of random F16 weights, made \
         here, so the text means nothing.\n\nprompt\n  {prompt}",
        args.suite,
        stock.ggml_version()
    );
    let texts = texts::compare(&stock, &workshop, seed, prompt)?;
    println!("\nthe CPU alone goes on\n  {}", shown(&texts.without));
    println!(
        "\nwith GGML_BACKEND_PATH=libggml-rocket.so and GGML_ROCKET_DEVICE={}\n  {}",
        stock.device(),
        shown(&texts.with)
    );
    println!("\nagreement\n  {texts}\n\n{}", texts.statistics.trim_end());
    Ok(())
}

/// Text of a model that writes any bytes, in one line.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).escape_debug().to_string()
}
