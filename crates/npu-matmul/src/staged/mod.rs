// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products whose operands stay where the NPU reads and writes them: zero copy.
//!
//! ```text
//! Engine::stage      plan, buffers, programs: all there is to allocate
//!   activations_mut  the caller fills A in place        (PREP_BO, FINI_BO)
//!   multiply         one SUBMIT for each device, waits
//!   results          the caller reads C in place        (PREP_BO)
//! ```
//!
//! `regions` tells what is where, `memory` who has a buffer, `build` makes all
//! that, `run` runs it, and `export` hands buffers to others.

mod build;
mod error;
mod export;
mod memory;
mod regions;
mod run;

use std::fmt;
use std::sync::Arc;

use rknpu_regcmd::Iova;
use rocket_uapi::{CpuRead, CpuWrite, Deadline, SharedBuffer};

use crate::dtype::Results;
use crate::engine::Engine;
use crate::error::Error;
use crate::exec::OnDevice;
use crate::packed::PackedWeights;
use crate::plan::{OperandOrders, Plan, PlanOptions, Step};
use crate::prepared::JobPrograms;

pub use error::StagedError;
use memory::{ActivationMemory, ResultMemory, Unavailable};
pub use regions::{ActivationBuffer, ActivationRegion, ResultBuffer, ResultRegion};
pub use run::StagedRun;

/// Names of the operands in errors.
const ACTIVATION: &str = "activation";
const RESULT: &str = "result";

/// What a staged product is to be like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageOptions {
    /// What the NPU makes of the sums, as far as it can: with K cut, FP16 sums
    /// stay in binary32. [`ResultRegion::layout`] tells.
    pub results: Results,
    /// How the rows of A and C follow each other. Row-major ones need K whole,
    /// INT8 or FP16, and for A often tiles of fewer rows; [`Plan::predict`] tells
    /// the modelled time of either.
    pub orders: OperandOrders,
}

/// A product of given weights and rows whose operands are in the NPU's own
/// buffers, to be filled and read in place, again and again: no copy, no
/// allocation of buffers, no new programs.
///
/// A buffer has an address only in its own file descriptor, so each device has
/// its own copy of the activations that it reads. The caller fills each of the
/// [`Staged::activation_buffers`], or fills one and calls
/// [`Staged::copy_activations`]. Each job writes a buffer of its own; together
/// the [`Staged::result_buffers`] hold C. The descriptions say which rows and
/// channels are where.
///
/// Where the weights' plan cuts K, the results are the sums of each part of K
/// ([`ResultRegion::depth`]), which the caller adds up: to have none, load them
/// with K whole ([`PlanOptions::k_tile`](crate::PlanOptions::k_tile)). INT4 ones are
/// int16, exact. Quantised weights give the sums of their integers, without
/// scales, rotation and outliers. Of INT4 weights for 8-bit activations the
/// operands are nibbles: A has two rows for each, one of h and one of l where
/// a = 16 h + l, and so has C.
///
/// Rows and channels beyond those of A are zeros from the beginning, and must
/// stay finite numbers with FP16: the NPU multiplies them with zeros. Rows beyond
/// those of C hold anything.
///
/// ```no_run
/// # fn example(
/// #     engine: &npu_matmul::Engine, weights: &npu_matmul::PackedWeights, x: &[i8],
/// # ) -> Result<(), npu_matmul::Error> {
/// let mut product = engine.stage(weights, 64)?;
/// for buffer in 0..product.activation_buffers().len() {
///     let regions = product.activation_buffers()[buffer].regions.clone();
///     let mut memory = product.activations_mut(buffer)?;
///     for region in regions {
///         for row in region.rows.clone() {
///             for k in region.channels.clone() {
///                 let at = region.layout.position(row - region.rows.start, k - region.channels.start);
///                 memory[at.byte] = x[row * weights.k() + k].cast_unsigned();
///             }
///         }
///     }
/// }
/// product.multiply()?;
/// let sums = product.results(0)?.as_slice_of::<i32>()[0];
/// # Ok(())
/// # }
/// ```
pub struct Staged<'a> {
    engine: &'a Engine,
    weights: &'a PackedWeights,
    plan: Plan,
    activations: Vec<ActivationBuffer>,
    activation_memory: Vec<ActivationMemory>,
    results: Vec<ResultBuffer>,
    result_memory: Vec<ResultMemory>,
    /// The job of each result buffer.
    parts: Vec<Part>,
}

/// A job.
struct Part {
    step: Arc<Step>,
    /// Index in the step.
    job: usize,
    programs: JobPrograms,
}

impl Engine {
    /// A product of `m` rows with these weights whose operands stay in the
    /// NPU's buffers.
    ///
    /// # Errors
    /// Weights of another engine; what has no plan; [`StagedError::TooLarge`];
    /// a device without memory.
    pub fn stage<'a>(&'a self, weights: &'a PackedWeights, m: usize) -> Result<Staged<'a>, Error> {
        self.stage_with(weights, m, StageOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Engine::stage`].
    pub fn stage_with<'a>(
        &'a self,
        weights: &'a PackedWeights,
        m: usize,
        options: StageOptions,
    ) -> Result<Staged<'a>, Error> {
        if weights.engine() != self.id() {
            return Err(Error::ForeignWeights);
        }
        let StageOptions { results, orders } = options;
        // There is nothing to pack or unpack beside the NPU's work.
        let plan_options = PlanOptions {
            parts: Some(1),
            ..self.options().clone()
        };
        let plan = Plan::with_orders(weights.plan(), m, results, orders, &plan_options)?;
        let mut staged = Staged {
            engine: self,
            weights,
            activations: Vec::new(),
            activation_memory: Vec::new(),
            results: Vec::new(),
            result_memory: Vec::new(),
            parts: Vec::new(),
            plan,
        };
        staged.describe()?;
        staged.allocate()?;
        Ok(staged)
    }
}

impl<'a> Staged<'a> {
    /// How it is computed.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Its buffers of activations, by the index that the other functions take.
    #[must_use]
    pub fn activation_buffers(&self) -> &[ActivationBuffer] {
        &self.activations
    }

    /// Its buffers of results, by the index that the other functions take.
    #[must_use]
    pub fn result_buffers(&self) -> &[ResultBuffer] {
        &self.results
    }

    /// Lets the CPU write a buffer of activations. Dropping what is returned
    /// gives it back to the NPU, [`CpuWrite::finish`] tells whether that worked.
    ///
    /// # Errors
    /// [`StagedError`]; PREP_BO fails.
    pub fn activations_mut(&mut self, index: usize) -> Result<CpuWrite<'_>, Error> {
        let (count, device) = (self.activations.len(), self.activations.get(index));
        let device = device
            .ok_or_else(|| no_such(ACTIVATION, index, count))?
            .device;
        let bo = self.activation_memory[index]
            .open()
            .map_err(|why| unavailable(why, ACTIVATION, index))?;
        bo.write(Deadline::FOREVER)
            .map_err(Error::on_device(device))
    }

    /// Copies what is in a buffer of activations to those of other devices for
    /// the same rows and channels.
    ///
    /// # Errors
    /// As [`Staged::activations_mut`], for each of them.
    pub fn copy_activations(&mut self, from: usize) -> Result<(), Error> {
        let count = self.activations.len();
        let same = self.activations.get(from);
        let same = same.ok_or_else(|| no_such(ACTIVATION, from, count))?;
        let (rows, channels, device) = (same.rows.clone(), same.channels.clone(), same.device);
        let copies: Vec<usize> = (0..count)
            .filter(|&to| {
                let to = &self.activations[to];
                (&to.rows, &to.channels) == (&rows, &channels) && to.device != device
            })
            .collect();
        for to in copies {
            let [source, copy] = self
                .activation_memory
                .get_disjoint_mut([from, to])
                .map_err(|_| no_such(ACTIVATION, to, count))?;
            let source = source
                .open()
                .map_err(|e| unavailable(e, ACTIVATION, from))?;
            let source = source
                .read(Deadline::FOREVER)
                .map_err(Error::on_device(device))?;
            let copy = copy.open().map_err(|e| unavailable(e, ACTIVATION, to))?;
            let failed = Error::on_device(self.activations[to].device);
            let mut copy = copy.write(Deadline::FOREVER).map_err(&failed)?;
            // Of the same tiles, and so of the same length.
            copy.copy_from_slice(&source);
            copy.finish().map_err(&failed)?;
        }
        Ok(())
    }

    /// Lets the CPU read a buffer of results.
    ///
    /// # Errors
    /// [`StagedError`]; PREP_BO fails.
    pub fn results(&self, index: usize) -> Result<CpuRead<'_>, Error> {
        let count = self.results.len();
        let memory = self.result_memory.get(index);
        let memory = memory.ok_or_else(|| no_such(RESULT, index, count))?;
        let bo = memory.open().map_err(|e| unavailable(e, RESULT, index))?;
        bo.read(Deadline::FOREVER)
            .map_err(Error::on_device(self.results[index].device))
    }

    /// Computes C of what is in the buffers of A.
    ///
    /// # Errors
    /// As [`StagedRun::wait`], and [`StagedError::Lost`].
    pub fn multiply(&mut self) -> Result<(), Error> {
        self.submit()?.wait()
    }

    /// Has the devices compute it, and returns while they do.
    ///
    /// # Errors
    /// As [`Staged::multiply`]. Nothing runs any more then.
    pub fn submit(&mut self) -> Result<StagedRun<'_, 'a>, Error> {
        StagedRun::start(self)
    }

    /// Where the NPU sees a buffer of activations, and its length.
    fn activation_address(&self, index: usize) -> Result<(Iova, usize), Error> {
        match &self.activation_memory[index] {
            ActivationMemory::Open(bo) => Ok((bo.iova(), bo.len())),
            ActivationMemory::Frozen(bo) => Ok((bo.iova(), bo.len())),
            ActivationMemory::Shared(bo) => Ok((bo.iova(), bo.len())),
            ActivationMemory::Moving => Err(self.lost(ACTIVATION, index)),
        }
    }

    fn on(&self, device: usize) -> OnDevice<'a> {
        OnDevice {
            engine: self.engine,
            device,
            token: self.engine.watched().token(),
        }
    }

    fn lost(&self, operand: &'static str, index: usize) -> Error {
        StagedError::Lost { operand, index }.into()
    }
}

impl Drop for Staged<'_> {
    /// Keeps the buffers for later products.
    fn drop(&mut self) {
        for (memory, buffer) in self.activation_memory.drain(..).zip(&self.activations) {
            if let Some(bo) = memory.into_own() {
                self.engine.buffers(buffer.device).put(bo);
            }
        }
        for (memory, buffer) in self.result_memory.drain(..).zip(&self.results) {
            if let Some(bo) = memory.owned {
                self.engine.buffers(buffer.device).put(bo);
            }
        }
    }
}

impl fmt::Debug for Staged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staged")
            .field("m", &self.plan.m)
            .field("activations", &self.activations.len())
            .field("results", &self.results.len())
            .finish_non_exhaustive()
    }
}

fn no_such(operand: &'static str, index: usize, count: usize) -> Error {
    StagedError::NoSuchBuffer {
        operand,
        index,
        count,
    }
    .into()
}

fn unavailable(why: Unavailable, operand: &'static str, index: usize) -> Error {
    match why {
        Unavailable::Exported => StagedError::Exported { operand, index },
        Unavailable::Lost => StagedError::Lost { operand, index },
    }
    .into()
}
