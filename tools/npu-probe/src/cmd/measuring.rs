// SPDX-License-Identifier: MIT OR Apache-2.0
//! Engines for commands that measure or compare results themselves.

use npu_matmul::{Engine, PlanOptions, Threads};
use rocket_uapi::{Device, DevicePool};

use crate::exit::Failure;

/// An [`engine`] with the profile of the device's board.
pub(crate) fn engine_of_board(device: &Device, fds: usize) -> Result<Engine, Failure> {
    let (options, refused) = PlanOptions::for_device(&device.info());
    if let Some(error) = refused {
        tracing::warn!(%error, "no profile of this board");
    }
    engine(device, fds, options, None)
}

/// An engine over several files of `device`. It does not check first tasks: its callers
/// compare results themselves, or measure.
pub(crate) fn engine(
    device: &Device,
    fds: usize,
    options: PlanOptions,
    threads: Option<Threads>,
) -> Result<Engine, Failure> {
    let options = PlanOptions {
        check_first: Some(false),
        ..options
    };
    let pool =
        DevicePool::open(device, fds).map_err(Failure::device("cannot open the device again"))?;
    let engine = Engine::with_options(pool, options)?;
    Ok(match threads {
        Some(threads) => engine.with_threads(threads)?,
        None => engine,
    })
}
