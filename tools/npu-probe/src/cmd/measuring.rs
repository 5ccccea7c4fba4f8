// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `bench` measures, from its options, and the engine that it uses.

use anyhow::Context;
use npu_matmul::{Engine, PlanOptions, Threads};
use rknpu_regcmd::timing::Machine;
use rocket_uapi::{Device, DevicePool};

use crate::bench::MeasuredProduct;
use crate::exit::Failure;
use crate::flags::{MeasuringFlags, OperandDtypes};
use crate::shape::ProductShape;

impl MeasuringFlags {
    /// A matmul on the software model or an NPU.
    pub(super) fn case(
        &self,
        kind: OperandDtypes,
        shape: ProductShape,
        machine: Machine,
        is_model: bool,
    ) -> MeasuredProduct {
        let precision = kind.dtype();
        MeasuredProduct {
            kind,
            results: self.planning.results(precision),
            int4_depth: self.planning.int4_depth(precision, shape.k),
            shape,
            repeat: self.repeat.get(),
            machine,
            is_model,
        }
    }

    /// Options to plan `case` with, on the device of `options`.
    pub(super) fn plan_options(
        &self,
        case: &MeasuredProduct,
        options: &PlanOptions,
    ) -> PlanOptions {
        PlanOptions {
            conditions: self.planning.conditions(case.kind.dtype(), case.shape.m),
            ..options.clone()
        }
    }
}

/// [`engine`] by the profile of the device's board.
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
    let pool = DevicePool::open(device, fds)
        .context("cannot open the device again")
        .map_err(Failure::Device)?;
    let engine = Engine::with_options(pool, options)?;
    Ok(match threads {
        Some(threads) => engine.with_threads(threads)?,
        None => engine,
    })
}
