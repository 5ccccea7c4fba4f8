// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random calls on the rocket driver of a board, a virtual machine or the model.
//!
//! It makes calls in rounds of 200, from two threads with two files each and one that
//! they share: objects of all sizes, handles of other files or of none, mappings,
//! waits, jobs with wrong addresses, counts and strides, programs with a few changed
//! words or of random words, dma-bufs, sync_files, forks, a file that closes with a
//! job in flight. At most three tasks of a thread in a round may hang, since each
//! costs 500 ms.
//!
//! What must hold: a call fails only with an error that docs/driver.md lists for it;
//! the memory of a file that no call names is unchanged; a new object is zeros; a
//! child ends well; a matmul completes afterwards; the kernel complains only of what
//! `expected/console.txt` lists.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use rocket_hw_tests::fuzz::{Options, run};
use rocket_hw_tests::{NO_DEVICE, NotPassed, open_or_exit};
use rocket_uapi::Selector;

/// Makes random calls on the rocket driver and checks that its errors are
/// documented ones, that the memory of other files is unchanged, and that the NPU
/// computes afterwards.
///
/// On a kernel it runs only with `--destructive`: a bug that it finds can damage the
/// kernel's memory and the data on its disks. Other programs on the NPU lose jobs.
///
/// Exit status: 0 if all checks passed, 1 if not, 2 for a wrong command line, 3 if the
/// device that was asked for cannot be used.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Where to run: `auto` (a kernel device if there is one, else the
    /// model), `model`, or the path of a device node [default: $ROCKET_DEVICE,
    /// else auto]
    #[arg(long, value_name = "auto|model|PATH")]
    device: Option<Selector>,
    /// Run on a kernel, although this may damage it
    #[arg(long)]
    destructive: bool,
    /// Seed of the random calls [default: another each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let opened = match open_or_exit(arguments.device) {
        Ok(opened) => opened,
        Err(code) => return code,
    };
    let info = opened.device.info();
    if !info.is_model && !arguments.destructive {
        eprintln!(
            "{}: this may damage the kernel; --destructive runs it anyway",
            info.name
        );
        return ExitCode::from(NO_DEVICE);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = || since.map_or(0, |since| since.as_nanos() as u64);
    let seed = arguments.seed.unwrap_or_else(now);
    println!(
        "{} ({}), seed {seed}",
        info.name,
        info.driver.name.display()
    );
    match run(&opened.device, seed, arguments.options) {
        Ok(steps) => {
            println!("RESULT {steps} calls, all checks passed");
            ExitCode::SUCCESS
        }
        Err(NotPassed::Fail(why) | NotPassed::Skip(why)) => {
            println!("FAIL {why}");
            ExitCode::FAILURE
        }
    }
}
