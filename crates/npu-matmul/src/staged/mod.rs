// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products whose operands stay where the NPU reads and writes them: zero copy.
//!
//! ```text
//! Engine::stage      plan, buffers, programs: all there is to allocate
//!   activations_mut  the caller fills A in place        (PREP_BO, FINI_BO)
//!   run              one SUBMIT for each device, waits
//!   results          the caller reads C in place        (PREP_BO)
//! ```
//!
//! `operands` tells what is where and who has it, `build` makes all that, and `run`
//! runs it.

mod build;
mod error;
mod operands;
mod run;

use std::fmt;
use std::sync::Arc;

use rocket_uapi::{CpuRead, CpuWrite, Deadline, DmaBuf};

use crate::dtype::Results;
use crate::engine::Engine;
use crate::error::Error;
use crate::exec::OnDevice;
use crate::packed::PackedWeights;
use crate::plan::{Plan, PlanOptions, Step};
use crate::prepared::JobPrograms;

pub use error::StagedError;
use operands::OperandMemory;
pub use operands::{OperandBuffer, OperandTile};

/// Names of the operands in errors.
const ACTIVATION: &str = "activation";
const RESULT: &str = "result";

/// What a staged product is to be like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageOptions {
    /// What the NPU makes of the sums, as far as it can: with K cut, FP16 sums
    /// stay in binary32. [`OperandTile::layout`] tells.
    pub results: Results,
    /// Whether A is row-major, instead of the NPU's own order. It needs K whole, INT8 or
    /// FP16, and often tiles of fewer rows; [`Plan::predict`] tells the modelled time.
    pub row_major_a: bool,
    /// Whether C is row-major, which needs K whole, and INT8 or FP16.
    pub row_major_c: bool,
}

/// A product of given weights and rows whose operands are in the NPU's own
/// buffers, to be filled and read in place, again and again: no copy, no
/// allocation of buffers, no new programs. Two of them, run by two threads, are a
/// double buffer.
///
/// A buffer has an address only in its own file descriptor, so each device has
/// its own copy of the activations that it reads. The caller fills each of the
/// [`Staged::activation_buffers`], or fills one and calls
/// [`Staged::copy_activations`]. Each job writes a buffer of its own; together
/// the [`Staged::result_buffers`] hold C. The descriptions say which rows and
/// columns are where.
///
/// Where the weights' plan cuts K, the results are the sums of each part of K
/// ([`OperandTile::depth`]), which the caller adds up: to have none, load them
/// with K whole ([`PlanOptions::k_tile`]). INT4 ones are
/// int16, exact. Quantised weights give the sums of their integers, without
/// scales and rotation. Of INT4 weights for 8-bit activations the
/// operands are nibbles: A has two rows for each, one of h and one of l where
/// a = 16 h + l, and so has C.
///
/// Rows and columns beyond those of A are zeros from the beginning, and must
/// stay finite numbers with FP16: the NPU multiplies them with zeros. Rows beyond
/// those of C hold anything.
///
/// ```no_run
/// # fn example(
/// #     engine: &npu_matmul::Engine, weights: &npu_matmul::PackedWeights, x: &[i8],
/// # ) -> Result<(), npu_matmul::Error> {
/// let mut product = engine.stage(weights, 64, Default::default())?;
/// for buffer in 0..product.activation_buffers().len() {
///     let tiles = product.activation_buffers()[buffer].tiles.clone();
///     let mut memory = product.activations_mut(buffer)?;
///     for tile in &tiles {
///         for row in tile.rows.clone() {
///             for k in tile.columns.clone() {
///                 let at = tile.layout.position(row - tile.rows.start, k - tile.columns.start);
///                 memory[at.byte] = x[row * weights.k() + k].cast_unsigned();
///             }
///         }
///     }
/// }
/// product.run()?;
/// let sums = product.results(0)?.as_slice_of::<i32>()[0];
/// # Ok(())
/// # }
/// ```
pub struct Staged<'a> {
    engine: &'a Engine,
    weights: &'a PackedWeights,
    plan: Plan,
    activations: Vec<OperandBuffer>,
    activation_memory: Vec<OperandMemory>,
    results: Vec<OperandBuffer>,
    result_memory: Vec<OperandMemory>,
    /// The job of each result buffer.
    jobs: Vec<StagedJob>,
}

struct StagedJob {
    step: Arc<Step>,
    /// Index in the step.
    job: usize,
    /// The buffer of activations that it reads.
    activations: usize,
    programs: JobPrograms,
}

impl Engine {
    /// A product of `m` rows with these weights whose operands stay in the
    /// NPU's buffers.
    ///
    /// # Errors
    /// Weights of another engine; what has no plan; [`StagedError::TooLarge`];
    /// a device without memory.
    pub fn stage<'a>(
        &'a self,
        weights: &'a PackedWeights,
        m: usize,
        options: StageOptions,
    ) -> Result<Staged<'a>, Error> {
        if weights.engine() != self.id() {
            return Err(Error::ForeignWeights);
        }
        let StageOptions {
            results,
            row_major_a,
            row_major_c,
        } = options;
        // There is nothing to pack or unpack beside the NPU's work.
        let plan_options = PlanOptions {
            parts: Some(1),
            ..self.options().clone()
        };
        let row_major = [row_major_a, row_major_c];
        let plan = Plan::with_row_major(weights.plan(), m, results, row_major, &plan_options)?;
        Staged::new(self, weights, plan)
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
    pub fn activation_buffers(&self) -> &[OperandBuffer] {
        &self.activations
    }

    /// Its buffers of results, by the index that the other functions take.
    #[must_use]
    pub fn result_buffers(&self) -> &[OperandBuffer] {
        &self.results
    }

    /// Lets the CPU write a buffer of activations. Dropping what is returned
    /// gives it back to the NPU, [`CpuWrite::finish`] tells whether that worked.
    ///
    /// # Errors
    /// [`StagedError`]; PREP_BO fails.
    pub fn activations_mut(&mut self, index: usize) -> Result<CpuWrite<'_>, Error> {
        let failed = Error::on_device(device_of(&self.activations, ACTIVATION, index)?);
        let bo = self.activation_memory[index].open()?;
        bo.write(Deadline::FOREVER).map_err(failed)
    }

    /// Copies what is in a buffer of activations to those of other devices for
    /// the same rows and channels.
    ///
    /// # Errors
    /// As [`Staged::activations_mut`], for each of them.
    pub fn copy_activations(&mut self, from: usize) -> Result<(), Error> {
        let device = device_of(&self.activations, ACTIVATION, from)?;
        let source = &self.activations[from];
        let same = |(_, to): &(usize, &OperandBuffer)| {
            (&to.rows, &to.columns) == (&source.rows, &source.columns) && to.device != device
        };
        let copies = self.activations.iter().enumerate().filter(same);
        for (to, buffer) in copies {
            let memory = self.activation_memory.get_disjoint_mut([from, to]);
            // Of other devices, and so not the same.
            let Ok([source, copy]) = memory else { continue };
            let source = source.open()?.read(Deadline::FOREVER);
            let source = source.map_err(Error::on_device(device))?;
            let failed = Error::on_device(buffer.device);
            let mut copy = copy.open()?.write(Deadline::FOREVER).map_err(&failed)?;
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
        let failed = Error::on_device(device_of(&self.results, RESULT, index)?);
        let bo = self.result_memory[index].read()?;
        bo.read(Deadline::FOREVER).map_err(failed)
    }

    /// Exports a buffer of activations as a dma-buf. From now on it is read and
    /// written by the dma-buf's functions, and
    /// [`Staged::activations_mut`] refuses it; products wait for the fences that
    /// are added to it. See [`DmaBuf`] for how long to keep it. Calling this
    /// again gives the same one.
    ///
    /// # Errors
    /// [`StagedError`]; the driver refuses, or no file descriptor is left.
    pub fn export_activations(&mut self, index: usize) -> Result<DmaBuf, Error> {
        let device = device_of(&self.activations, ACTIVATION, index)?;
        let exported = self.activation_memory[index].export();
        exported.map_err(|error| error.map_or_else(Error::from, Error::on_device(device)))
    }

    /// Exports a buffer of results as a dma-buf. From now on it is read by the
    /// dma-buf's functions, and [`Staged::results`] refuses it; products wait for
    /// the fences that are added to it, and those who wait for its fences wait
    /// for products. See [`DmaBuf`] for how long to keep it. Calling this again
    /// gives the same one.
    ///
    /// # Errors
    /// [`StagedError`]; the driver refuses, or no file descriptor is left.
    pub fn export_results(&mut self, index: usize) -> Result<DmaBuf, Error> {
        let device = device_of(&self.results, RESULT, index)?;
        let exported = self.result_memory[index].export();
        exported.map_err(|error| error.map_or_else(Error::from, Error::on_device(device)))
    }

    fn on(&self, device: usize) -> OnDevice<'a> {
        OnDevice {
            engine: self.engine,
            device,
            token: self.engine.watched().token(),
        }
    }
}

impl Drop for Staged<'_> {
    /// Keeps the buffers for later products.
    fn drop(&mut self) {
        let activations = self.activation_memory.drain(..).zip(&self.activations);
        let results = self.result_memory.drain(..).zip(&self.results);
        for (memory, buffer) in activations.chain(results) {
            if let Some(bo) = memory.into_own() {
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

/// The device of a buffer, if there is such a buffer.
fn device_of(
    buffers: &[OperandBuffer],
    operand: &'static str,
    index: usize,
) -> Result<usize, StagedError> {
    let count = buffers.len();
    let buffer = buffers.get(index).ok_or(StagedError::NoSuchBuffer {
        operand,
        index,
        count,
    })?;
    Ok(buffer.device)
}
