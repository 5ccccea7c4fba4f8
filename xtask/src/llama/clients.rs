// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks: two clients of one llama-server, and two llama-servers beside each
//! other, get what the CPU alone writes for each prompt.
//!
//! Both servers have loaded their model, and so have opened the device, before
//! either is asked.

use std::path::Path;
use std::sync::Barrier;
use std::thread;

use anyhow::{Context, Result, anyhow};

use super::model::Workshop;
use super::reference::{Agreement, ReferenceText};
use super::server::{self, LlamaServer};
use super::stats::StatsTable;
use super::stock::{Backend, Stock, THREADS};
use super::texts;
use crate::report::CheckVerdict;

/// Name of the check of one server.
pub(super) const CLIENTS: &str = "server-two-clients";
/// Name of the check of two.
pub(super) const PROCESSES: &str = "two-processes";
/// Tokens to write.
const TOKENS: usize = 16;
/// Requests of each client, one after the other.
const ROUNDS: usize = 2;

/// Two clients at once, of a server that answers two at once.
pub(super) fn check_clients(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let model = workshop.tiny_f16(texts::PROMPTS[0].0)?;
    let references = references(stock, &model)?;
    let server = start(stock, &model, references.len())?;
    let agreements = ask_together([&server, &server], &references)?;
    let products = products(server)?;
    Ok(CheckVerdict::Pass(format!(
        "{products} products in FP16; {ROUNDS} answers of {TOKENS} tokens each: {}",
        told(&agreements)
    )))
}

/// Two servers, each with a client.
pub(super) fn check_processes(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let model = workshop.tiny_f16(texts::PROMPTS[0].0)?;
    let references = references(stock, &model)?;
    let first = start(stock, &model, 1)?;
    let second = start(stock, &model, 1)?;
    let agreements = ask_together([&first, &second], &references)?;
    let (first, second) = (products(first)?, products(second)?);
    Ok(CheckVerdict::Pass(format!(
        "{first} and {second} products in FP16; {ROUNDS} answers of {TOKENS} tokens each: {}",
        told(&agreements)
    )))
}

/// The texts that the CPU writes after two prompts, with which answers are compared.
fn references<'a>(stock: &'a Stock, model: &Path) -> Result<[ReferenceText<'a>; 2]> {
    let [(_, first), (_, second), ..] = texts::PROMPTS;
    Ok([
        ReferenceText::new(stock, model, first, TOKENS)?,
        ReferenceText::new(stock, model, second, TOKENS)?,
    ])
}

fn start(stock: &Stock, model: &Path, slots: usize) -> Result<LlamaServer> {
    let command = stock.command("llama-server", Backend::With)?;
    LlamaServer::launch(command, &model.to_string_lossy(), THREADS, slots)
}

/// Asks each server for one of the texts, at the same time, and judges them.
fn ask_together(
    servers: [&LlamaServer; 2],
    references: &[ReferenceText<'_>; 2],
) -> Result<Vec<Agreement>> {
    let ready = Barrier::new(servers.len());
    let client = |server: &LlamaServer, reference: &ReferenceText<'_>| -> Result<Vec<Vec<u8>>> {
        ready.wait();
        let ask = |_| {
            let steps = server.complete(reference.tokens(), TOKENS)?;
            Ok(server::text(&steps))
        };
        (0..ROUNDS).map(ask).collect()
    };
    let answers = thread::scope(|scope| {
        let clients: Vec<_> = servers
            .into_iter()
            .zip(references)
            .map(|(server, reference)| scope.spawn(move || client(server, reference)))
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().map_err(|_| anyhow!("a client panicked"))?)
            .collect::<Result<Vec<_>>>()
    })?;
    let mut agreements = Vec::new();
    for (reference, texts) in references.iter().zip(answers) {
        for text in texts {
            agreements.push(reference.judge(&text)?);
        }
    }
    Ok(agreements)
}

/// Stops a server and reads how many products it computed.
fn products(server: LlamaServer) -> Result<u64> {
    let log = server.stop()?;
    StatsTable::find(&log)
        .and_then(|stats| stats.offloaded("fp16"))
        .context("at the end of llama-server")
}

fn told(agreements: &[Agreement]) -> String {
    let told: Vec<String> = agreements.iter().map(Agreement::to_string).collect();
    told.join(", ")
}
