// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe run --serve`: serves the software NPU to all programs of a user.

use std::env;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use npu_model::Model;
use npu_server::{Server, ServerError};
use npu_wire::Address;

use crate::base::end_signals::EndSignals;
use crate::base::exit::{Failure, Verdict};
use crate::base::output;
use crate::served::{self, ModelFlags};

/// Hidden options of `run`, for librocket_preload.so.
#[derive(Debug, Args)]
pub(super) struct ServeFlags {
    /// Serve the software NPU to all programs of a user, until the last client has ended
    #[arg(long, hide = true, conflicts_with_all = ["command", "record", "trace", "report"])]
    pub(super) serve: bool,

    /// Name of the server, like the variable ROCKET_SERVER [default: the user's]
    #[arg(long, value_name = "NAME", hide = true, requires = "serve")]
    address: Option<String>,
}

/// How long the server waits for its first client, and for the next one.
const LINGER: Duration = Duration::from_secs(2);

/// Printed when clients can connect.
const READY: &str = "ready\n";

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

pub(super) fn run(serve: &ServeFlags, model: &ModelFlags) -> Result<Verdict, Failure> {
    let options = served::options(model)?;
    let address = match &serve.address {
        None => shared_address()?,
        Some(name) => Address::new(name.as_bytes())
            .ok_or_else(|| Failure::Usage(anyhow!("`{name}` is not a valid name of a server")))?,
    };
    npu_server::shared_server_limits().map_err(Failure::device("cannot serve the model"))?;
    let signals = EndSignals::block()?;
    let server = match Server::start_at(Model::new(options), address) {
        // Another server started first, so clients that wait for this one can use it.
        Err(ServerError::InUse(_)) if serve.address.is_none() => {
            output::print(READY)?;
            return Ok(Verdict::Pass);
        }
        other => other.map_err(Failure::device("cannot serve the model"))?,
    };
    output::print(READY)?;
    server.wait_until_idle(LINGER, || signals.arrived());
    Ok(Verdict::Pass)
}
