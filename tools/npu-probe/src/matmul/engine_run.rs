// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NPU's result of a matmul, and engines for commands that measure or compare it themselves.

use std::ops::Range;

use npu_matmul::{Engine, Error, Outputs, PackedWeights, PlanOptions, Threads};
use rocket_uapi::{Device, DevicePool};

use crate::base::exit::Failure;
use crate::matmul::data::MatmulOperands;

/// The NPU's result of a matmul.
#[derive(Clone, Debug)]
pub(crate) enum MatmulResult {
    Integers(Vec<i32>),
    Floats(Vec<f32>),
}

impl MatmulResult {
    /// Space for `len` elements, filled with an unlikely value that shows unwritten
    /// elements.
    pub(crate) fn unwritten(operands: &MatmulOperands, len: usize) -> Self {
        match operands {
            MatmulOperands::Integers(_) => Self::Integers(vec![i32::MIN; len]),
            MatmulOperands::Floats(_) | MatmulOperands::Quantised(_) => {
                Self::Floats(vec![f32::NAN; len])
            }
        }
    }

    /// Multiplies `m` rows on the NPU.
    pub(crate) fn multiply(
        &mut self,
        engine: &Engine,
        weights: &PackedWeights,
        m: usize,
        operands: &MatmulOperands,
    ) -> Result<(), Error> {
        let c: Outputs<'_> = match self {
            Self::Integers(c) => c.into(),
            Self::Floats(c) => c.into(),
        };
        let gemm = engine.prepare(weights, m)?;
        match operands {
            MatmulOperands::Integers([a, _]) => gemm.run(a, c),
            MatmulOperands::Floats([a, _]) => gemm.run(a, c),
            MatmulOperands::Quantised([a, _]) => gemm.run(a, c),
        }
    }

    /// The given rows of the result; each has `n` elements.
    pub(crate) fn rows(&self, rows: Range<usize>, n: usize) -> Self {
        let part = rows.start * n..rows.end * n;
        match self {
            Self::Integers(c) => Self::Integers(c[part].to_vec()),
            Self::Floats(c) => Self::Floats(c[part].to_vec()),
        }
    }
}

/// An [`engine`] with the profile of the device's board.
pub(crate) fn engine_of_board(device: &Device, fds: usize) -> Result<Engine, Failure> {
    let (options, refused) = PlanOptions::for_device(&device.info());
    if let Some(error) = refused {
        tracing::warn!(%error, "no profile of this board");
    }
    engine(device, fds, options, None)
}

/// An engine over several files of `device`. It does not check first tasks: its callers
/// compare results themselves, or measure. The NPU computes all jobs: the CPU's would hide its
/// mistakes and its speed.
pub(crate) fn engine(
    device: &Device,
    fds: usize,
    options: PlanOptions,
    threads: Option<Threads>,
) -> Result<Engine, Failure> {
    let options = PlanOptions {
        check_first: Some(false),
        cpu_jobs: Some(false),
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
