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
mod repeated;
mod server;
mod stats;
mod stock;
mod stock_bench;
mod tensor_split;
mod texts;
mod trace;
mod truncated;

use std::path::PathBuf;

use anyhow::{Result, bail};

use CheckKind::{Alone, Measuring, Several, WithModels};
use model::Workshop;
pub(crate) use stock::LlamaArgs;
use stock::Stock;

use crate::build::{self, CargoProfile};
use crate::report::{CheckVerdict, VerdictTally};

/// Options of `cargo xtask llama`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Run only these checks (all-backend-ops, valgrind, python, node, real-driver,
    /// quality and bench run only when they are named)
    #[arg(value_name = "CHECK", value_parser = CHECKS.map(|check| check.name))]
    only: Vec<String>,
    /// Write what was measured into docs/llama.md (quality, bench), or what is
    /// supported into the file that it is compared with (test-backend-ops)
    #[arg(long)]
    record: bool,
    #[command(flatten)]
    args: LlamaArgs,
}

/// What a check is given, and what it gives.
#[derive(Clone, Copy)]
enum CheckKind {
    /// Needs no model.
    Alone(fn(&Stock) -> Result<CheckVerdict>),
    /// Needs no model, and adds several verdicts. Writes down what is supported if
    /// that is asked.
    Several(fn(&Stock, bool, &mut VerdictTally)),
    /// Computes with models.
    WithModels(fn(&Stock, &Workshop) -> Result<CheckVerdict>),
    /// Measures with models, and writes down what it measured if that is asked.
    Measuring(fn(&Stock, &Workshop, bool) -> Result<CheckVerdict>),
}

/// A check by its name.
#[derive(Clone, Copy)]
struct NamedCheck {
    name: &'static str,
    kind: CheckKind,
    /// Whether it takes long and runs only when it is named.
    on_request: bool,
}

const fn usual(name: &'static str, kind: CheckKind) -> NamedCheck {
    NamedCheck {
        name,
        kind,
        on_request: false,
    }
}

const fn on_request(name: &'static str, kind: CheckKind) -> NamedCheck {
    NamedCheck {
        name,
        kind,
        on_request: true,
    }
}

/// All checks, in the order in which they run.
const CHECKS: [NamedCheck; 27] = [
    usual(devices::NAME, Alone(devices::check)),
    usual(
        hosts::NAME,
        Several(|stock, _, report| hosts::check(stock, report)),
    ),
    usual(contexts::NAME, Alone(contexts::check)),
    usual(refusals::NAME, WithModels(refusals::check)),
    usual(truncated::NAME, WithModels(truncated::check)),
    usual(tensor_split::NAME, WithModels(tensor_split::check)),
    usual(failures::NAME, WithModels(failures::check)),
    usual(texts::NAME, WithModels(texts::check)),
    usual(layers::NAME, WithModels(layers::check)),
    usual(budget::NAME, WithModels(budget::check)),
    usual(clients::CLIENTS, WithModels(clients::check_clients)),
    usual(clients::PROCESSES, WithModels(clients::check_processes)),
    usual(divergence::NAME, WithModels(divergence::check)),
    usual(model_types::NAME, WithModels(model_types::check)),
    usual(embedding::NAME, WithModels(embedding::check)),
    usual(placement::NAME, WithModels(placement::check)),
    usual(repeated::NAME, WithModels(repeated::check)),
    usual(stock_bench::NAME, WithModels(stock_bench::check)),
    usual(batched::NAME, WithModels(batched::check)),
    usual(backend_ops::NAME, Several(backend_ops::check)),
    on_request(backend_ops::ALL, Alone(backend_ops::check_all)),
    on_request(memory::NAME, WithModels(memory::check)),
    on_request(python::NAME, WithModels(python::check)),
    on_request(node::NAME, WithModels(node::check)),
    on_request(guest::NAME, WithModels(guest::check)),
    on_request(quality::NAME, Measuring(quality::check)),
    on_request(bench::NAME, Measuring(bench::check)),
];

/// Runs the checks; an error if one failed.
pub(crate) fn run(args: &CheckArgs) -> Result<()> {
    let mut report = VerdictTally::default();
    let checks: Vec<NamedCheck> = CHECKS
        .into_iter()
        .filter(|check| match args.only.is_empty() {
            true => !check.on_request,
            false => args.only.iter().any(|only| only == check.name),
        })
        .collect();
    run_checks(&args.args, &checks, args.record, &mut report);
    println!("\n{}", report.closing_line());
    if report.failed() > 0 {
        bail!("{} checks failed", report.failed());
    }
    Ok(())
}

fn run_checks(args: &LlamaArgs, checks: &[NamedCheck], record: bool, report: &mut VerdictTally) {
    if let Some(missing) = args.arch.missing_program(&["python3"]) {
        for check in checks {
            let why = format!("needs the program {missing}, which this machine does not have");
            report.add(check.name, Ok(CheckVerdict::Skip(why)));
        }
        return;
    }
    let prepared = (|| {
        let measures = |check: &NamedCheck| matches!(check.kind, Measuring(_));
        let profile = match checks.iter().any(measures) {
            true => CargoProfile::Dist,
            false => CargoProfile::Release,
        };
        let library = build::backend(args.arch, profile)?;
        let stock = Stock::prepare(args, library)?;
        println!(
            "llama.cpp of Debian {} ({}), ggml {}, in {}",
            args.suite,
            args.arch,
            stock.ggml_version(),
            stock.sysroot().root().display()
        );
        let with_models = |check: &NamedCheck| matches!(check.kind, WithModels(_) | Measuring(_));
        let workshop = checks.iter().any(with_models).then(Workshop::prepare);
        Ok((stock, workshop.transpose()?))
    })();
    let (stock, workshop) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            // Nothing can run: each check says why, so that none is lost.
            for check in checks {
                report.error(check.name, &error);
            }
            return;
        }
    };
    report.set_host(stock.ggml_version());
    for NamedCheck { name, kind, .. } in checks {
        match (kind, &workshop) {
            (Alone(check), _) => report.add(name, check(&stock)),
            (Several(check), _) => check(&stock, record, report),
            (WithModels(check), Some(workshop)) => report.add(name, check(&stock, workshop)),
            (Measuring(check), Some(workshop)) => {
                report.add(name, check(&stock, workshop, record));
            }
            // There is a workshop if any check needs one.
            (WithModels(_) | Measuring(_), None) => {}
        }
    }
}

/// Makes a model with a small vocabulary, in F16; returns its file.
pub(crate) fn tiny_model() -> Result<PathBuf> {
    Workshop::prepare()?.tiny_f16(1)
}
