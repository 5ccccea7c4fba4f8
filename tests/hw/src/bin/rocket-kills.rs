// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kills clients in the middle of their work until the kernel complains.
//!
//! For a kernel with KASAN in a virtual machine; it ends with the
//! kernel's first complaint (tests/hw/bugs/use-after-close.md).

use std::process::ExitCode;

use clap::Parser;
use rocket_hw_tests::NotPassed;
use rocket_hw_tests::kills::ClientOptions;

/// Kills clients of the rocket driver, and shows what the kernel reports.
///
/// Current kernels use freed memory if a client is killed at the wrong moment. This
/// can damage any data in memory and on disks.
///
/// Ends with a line `killed N complaint WHAT`, WHAT being `none`, `exported` (an
/// exported object outlived its file) or `late` (a job's reference did, or a job).
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    what: ClientOptions,
    /// Run, although this may damage the kernel
    #[arg(long)]
    destructive: bool,
    /// Number of clients to kill, unless the kernel complains earlier
    #[arg(long, default_value_t = 200)]
    kills: u32,
    /// Seed of the random moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Be a client: multiply until killed
    #[arg(long, hide = true)]
    client: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = if arguments.client {
        arguments.what.run().map(|never| match never {})
    } else if arguments.destructive {
        arguments.what.kill(arguments.kills, arguments.seed)
    } else {
        let why = "this may damage the kernel; --destructive runs it anyway";
        Err(NotPassed::Fail(why.to_owned()))
    };
    match done {
        Ok((killed, complaint)) => {
            println!("killed {killed} complaint {}", complaint.unwrap_or("none"));
            ExitCode::SUCCESS
        }
        Err(NotPassed::Fail(why) | NotPassed::Skip(why)) => {
            eprintln!("rocket-kills: {why}");
            ExitCode::FAILURE
        }
    }
}
