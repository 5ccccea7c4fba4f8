// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe serve`: serves the software NPU to all programs of a user.

use std::env;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use npu_model::Model;
use npu_server::{Server, ServerError};
use npu_wire::Address;

use crate::exit::{Failure, Verdict};
use crate::{output, served};

/// Options of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeFlags {
    #[command(flatten)]
    model: served::ModelFlags,

    /// Name of the server, like the variable ROCKET_SERVER [default: the user's]
    #[arg(long, value_name = "NAME")]
    address: Option<String>,
}

/// How long the server waits for its first client, and for the next one.
const LINGER: Duration = Duration::from_secs(2);

/// Printed when clients can connect.
const READY: &str = "ready\n";

/// The signals that ask this process to end, so that it can clean up. Call this on the thread
/// that starts all others.
fn end_signals() -> Result<SignalFd, Failure> {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
        .into_iter()
        .collect();
    let pending = signals.thread_block().and_then(|()| {
        SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
    });
    pending.map_err(Failure::device("cannot wait for signals"))
}

/// The address at which this user's programs look for a server.
fn shared_address() -> Result<Address, Failure> {
    let [runtime, temporary] =
        ["XDG_RUNTIME_DIR", "TMPDIR"].map(|name| env::var_os(name).map(OsStringExt::into_vec));
    let folder = npu_wire::shared_directory(runtime.as_deref(), temporary.as_deref());
    Address::shared(folder).map_err(Failure::usage(format!(
        "cannot use the folder {}",
        folder.escape_ascii()
    )))
}

pub(crate) fn run(serve: &ServeFlags) -> Result<Verdict, Failure> {
    let options = served::options(&serve.model)?;
    let address = match &serve.address {
        None => shared_address()?,
        Some(name) => Address::new(name.as_bytes())
            .ok_or_else(|| Failure::Usage(anyhow!("`{name}` is not a valid name of a server")))?,
    };
    npu_server::shared_server_limits().map_err(Failure::device("cannot serve the model"))?;
    let signals = end_signals()?;
    let server = match Server::start_at(Model::new(options), address) {
        // Another server started first, so clients that wait for this one can use it.
        Err(ServerError::InUse(_)) if serve.address.is_none() => {
            output::print(READY)?;
            return Ok(Verdict::Pass);
        }
        other => other.map_err(Failure::device("cannot serve the model"))?,
    };
    output::print(READY)?;
    let is_ended = || matches!(signals.read_signal(), Ok(Some(_)));
    server.wait_until_idle(LINGER, is_ended);
    Ok(Verdict::Pass)
}
