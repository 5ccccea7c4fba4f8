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

mod backend_ops;
pub(crate) mod demo;
mod devices;
mod divergence;
mod model;
mod refusals;
mod server;
mod stats;
mod stock;
mod texts;

use anyhow::{Result, bail};

use model::Workshop;
use stock::Stock;

use crate::arch::Arch;
use crate::build;
use crate::report::{Report, Verdict};

/// The CPU's share of a computation depends on how many threads divide it, so
/// that both sides of each comparison use the same number.
const THREADS: &str = "2";

/// Options of `cargo xtask llama`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Debian's name of the architecture of the stock binaries [default: this
    /// machine's]
    #[arg(long, value_enum, default_value_t = Arch::native(), hide_default_value = true)]
    arch: Arch,
    /// Debian suite to take them from
    #[arg(long, default_value = "sid")]
    suite: String,
    /// Device that the backend uses: auto, model or a path
    #[arg(long, default_value = "auto")]
    device: String,
    /// Fetch the packages again, even if they are less than a day old
    #[arg(long)]
    refresh: bool,
}

/// Runs all checks; an error if one failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut report = Report::default();
    check(args, &mut report);
    println!("\n{}", report.closing_line());
    if report.failed() > 0 {
        bail!("{} checks failed", report.failed());
    }
    Ok(())
}

fn check(args: &Args, report: &mut Report) {
    const CHECKS: [&str; 5] = [
        devices::NAME,
        refusals::NAME,
        texts::NAME,
        divergence::NAME,
        backend_ops::NAME,
    ];
    if let Some(missing) = args.arch.missing_program(&["python3"]) {
        for name in CHECKS {
            let why = format!("needs the program {missing}, which this machine does not have");
            report.add(name, Ok(Verdict::Skip(why)));
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
            stock.directory().display()
        );
        let workshop = Workshop::prepare()?;
        Ok((stock, workshop))
    })();
    let (stock, workshop) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            // Nothing can run: each check says why, so that none is lost.
            for name in CHECKS {
                report.error(name, &error);
            }
            return;
        }
    };
    report.set_host(stock.ggml_version());
    report.add(devices::NAME, devices::check(&stock));
    report.add(refusals::NAME, refusals::check(&stock, &workshop));
    report.add(texts::NAME, texts::check(&stock, &workshop));
    report.add(divergence::NAME, divergence::check(&stock, &workshop));
    report.add(backend_ops::NAME, backend_ops::check(&stock));
}
