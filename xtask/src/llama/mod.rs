// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask llama`: Debian's stock llama.cpp, with our backend loaded.
//!
//! Fetches the binaries into a private directory, makes tiny models, builds
//! `libggml-rocket.so`, and compares runs with it and without it. Prints one
//! line a check, `PASS`, `FAIL`, `SKIP` or `SKIP-EXTERNAL`, and at the end
//! `N passed, N failed, N skipped`.
//!
//! `SKIP-EXTERNAL` is what the outside world took away: no network, a package
//! gone, or a ggml newer than the newest that this was tested with and that
//! does not work. Only `FAIL` makes the command fail.

mod attempts;
mod backend_ops;
mod batched;
mod bench;
mod budget;
mod clients;
mod conditions;
mod contexts;
pub(crate) mod demo;
mod devices;
mod divergence;
mod embedding;
mod failures;
mod guest;
mod hosts;
mod layers;
mod logits;
mod memory;
mod model;
mod model_types;
mod node;
mod page;
mod placement;
mod python;
mod quality;
mod reference;
mod refusals;
mod server;
mod stats;
mod stock;
mod stock_bench;
mod texts;
mod trace;
mod truncated;

use anyhow::{Result, anyhow, bail};

use model::Workshop;
pub(crate) use stock::LlamaArgs;
use stock::Stock;

use crate::build;
use crate::report::{CheckVerdict, VerdictTally};

/// Options of `cargo xtask llama`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Run only these checks (all-backend-ops, valgrind, python, node, real-driver,
    /// quality and bench run only when they are named)
    #[arg(value_name = "CHECK", value_parser = CHECKS)]
    only: Vec<String>,
    /// Write what was measured into docs/llama.md (quality, bench), or what is
    /// supported into the file that it is compared with (test-backend-ops)
    #[arg(long)]
    record: bool,
    #[command(flatten)]
    args: LlamaArgs,
}

/// All checks, in the order in which they run.
const CHECKS: [&str; 25] = [
    devices::NAME,
    hosts::NAME,
    contexts::NAME,
    refusals::NAME,
    truncated::NAME,
    failures::NAME,
    texts::NAME,
    layers::NAME,
    budget::NAME,
    clients::CLIENTS,
    clients::PROCESSES,
    divergence::NAME,
    model_types::NAME,
    embedding::NAME,
    placement::NAME,
    stock_bench::NAME,
    batched::NAME,
    backend_ops::NAME,
    backend_ops::ALL,
    memory::NAME,
    python::NAME,
    node::NAME,
    guest::NAME,
    quality::NAME,
    bench::NAME,
];

/// Those that take long and run only when they are named.
const ON_REQUEST: [&str; 7] = [
    backend_ops::ALL,
    memory::NAME,
    python::NAME,
    node::NAME,
    guest::NAME,
    quality::NAME,
    bench::NAME,
];

/// A check that computes with models.
type WithModels = fn(&Stock, &Workshop) -> Result<CheckVerdict>;

/// Those that compute with models.
const WITH_MODELS: [(&str, WithModels); 18] = [
    (refusals::NAME, refusals::check),
    (truncated::NAME, truncated::check),
    (failures::NAME, failures::check),
    (texts::NAME, texts::check),
    (layers::NAME, layers::check),
    (budget::NAME, budget::check),
    (clients::CLIENTS, clients::check_clients),
    (clients::PROCESSES, clients::check_processes),
    (divergence::NAME, divergence::check),
    (model_types::NAME, model_types::check),
    (embedding::NAME, embedding::check),
    (placement::NAME, placement::check),
    (stock_bench::NAME, stock_bench::check),
    (batched::NAME, batched::check),
    (memory::NAME, memory::check),
    (python::NAME, python::check),
    (node::NAME, node::check),
    (guest::NAME, guest::check),
];

/// A check that measures with models, and writes down what it measured if asked.
type Measuring = fn(&Stock, &Workshop, bool) -> Result<CheckVerdict>;

/// Those that measure.
const MEASURING: [(&str, Measuring); 2] =
    [(quality::NAME, quality::check), (bench::NAME, bench::check)];

/// Runs the checks; an error if one failed.
pub(crate) fn run(args: &CheckArgs) -> Result<()> {
    let mut report = VerdictTally::default();
    let checks: Vec<&str> = CHECKS
        .into_iter()
        .filter(|name| match args.only.is_empty() {
            true => !ON_REQUEST.contains(name),
            false => args.only.iter().any(|only| only == name),
        })
        .collect();
    check(&args.args, &checks, args.record, &mut report);
    println!("\n{}", report.closing_line());
    if report.failed() > 0 {
        bail!("{} checks failed", report.failed());
    }
    Ok(())
}

fn check(args: &LlamaArgs, checks: &[&str], record: bool, report: &mut VerdictTally) {
    if let Some(missing) = args.arch.missing_program(&["python3"]) {
        for name in checks {
            let why = format!("needs the program {missing}, which this machine does not have");
            report.add(name, Ok(CheckVerdict::Skip(why)));
        }
        return;
    }
    let prepared = (|| {
        let library = build::backend(args.arch)?;
        let stock = Stock::prepare(args, library)?;
        println!(
            "llama.cpp of Debian {} ({}), ggml {}, in {}",
            args.suite,
            args.arch,
            stock.ggml_version(),
            stock.sysroot().root().display()
        );
        let names = WITH_MODELS.iter().map(|(name, _)| name);
        let with_models = names
            .chain(MEASURING.iter().map(|(name, _)| name))
            .any(|name| checks.contains(name));
        let workshop = with_models.then(Workshop::prepare).transpose()?;
        Ok((stock, workshop))
    })();
    let (stock, workshop) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            // Nothing can run: each check says why, so that none is lost.
            for name in checks {
                report.error(name, &error);
            }
            return;
        }
    };
    report.set_host(stock.ggml_version());
    for &name in checks {
        let with_models = WITH_MODELS.iter().find(|(other, _)| *other == name);
        let measuring = MEASURING.iter().find(|(other, _)| *other == name);
        if let (Some((_, measure)), Some(workshop)) = (measuring, &workshop) {
            report.add(name, measure(&stock, workshop, record));
            continue;
        }
        match (name, with_models, &workshop) {
            (devices::NAME, ..) => report.add(name, devices::check(&stock)),
            (contexts::NAME, ..) => report.add(name, contexts::check(&stock)),
            (hosts::NAME, ..) => hosts::check(&stock, report),
            (backend_ops::NAME, ..) => backend_ops::check(&stock, record, report),
            (backend_ops::ALL, ..) => report.add(name, backend_ops::check_all(&stock)),
            (_, Some((_, check)), Some(workshop)) => report.add(name, check(&stock, workshop)),
            (other, ..) => report.error(other, &anyhow!("is called, but not written")),
        }
    }
}
