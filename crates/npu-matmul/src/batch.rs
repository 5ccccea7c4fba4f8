// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several products at once.

use std::fmt;

use half::f16;

use crate::engine::Engine;
use crate::error::Error;
use crate::exec::{ProductRun, Work};
use crate::quantised::QuantisedActivations;
use crate::weights::Weights;

/// Products that do not depend on each other: the heads or experts of a layer,
/// or several matrices that meet the same activations.
///
/// They share SUBMITs, one for each device where their jobs are small, and the
/// NPU computes one while the CPU unpacks another. Products that are given the
/// very same activations (the same memory) pack them once where their plans cut
/// them alike.
///
/// ```no_run
/// # fn example(
/// #     engine: &npu_matmul::Engine, [q, k]: [npu_matmul::Weights; 2], x: &[i8],
/// #     queries: &mut [i32], keys: &mut [i32],
/// # ) -> Result<(), npu_matmul::Error> {
/// let mut batch = engine.batch();
/// batch.multiply_i32(&q, 512, x, queries)?;
/// batch.multiply_i32(&k, 512, x, keys)?;
/// let submitted = batch.submit()?;
/// // The NPU computes; here is time for something else.
/// submitted.wait()
/// # }
/// ```
#[must_use = "products are computed when the batch is run"]
pub struct Batch<'a> {
    engine: &'a Engine,
    works: Vec<Box<dyn Work<'a> + 'a>>,
}

impl Engine {
    /// A batch without products.
    pub fn batch(&self) -> Batch<'_> {
        Batch {
            engine: self,
            works: Vec::new(),
        }
    }
}

impl<'a> Batch<'a> {
    /// Adds a product as [`Engine::multiply_i32`] computes it.
    ///
    /// # Errors
    /// Operands that do not fit; the batch is as it was.
    pub fn multiply_i32(
        &mut self,
        weights: &'a Weights,
        m: usize,
        a: &'a [i8],
        out: &'a mut [i32],
    ) -> Result<(), Error> {
        self.works
            .push(self.engine.product_i32(weights, m, a, out)?);
        Ok(())
    }

    /// Adds a product as [`Engine::multiply_w4a8_i32`] computes it.
    ///
    /// # Errors
    /// Operands that do not fit; the batch is as it was.
    pub fn multiply_w4a8_i32(
        &mut self,
        weights: &'a Weights,
        m: usize,
        a: &'a [i8],
        out: &'a mut [i32],
    ) -> Result<(), Error> {
        self.works
            .push(self.engine.product_w4a8_i32(weights, m, a, out)?);
        Ok(())
    }

    /// Adds a product as [`Engine::multiply_f32`] computes it.
    ///
    /// # Errors
    /// Operands that do not fit; the batch is as it was.
    pub fn multiply_f32(
        &mut self,
        weights: &'a Weights,
        m: usize,
        a: &'a [f16],
        out: &'a mut [f32],
    ) -> Result<(), Error> {
        self.works
            .push(self.engine.product_f32(weights, m, a, out)?);
        Ok(())
    }

    /// Adds a product as [`Engine::multiply_f16`] computes it.
    ///
    /// # Errors
    /// Operands that do not fit; the batch is as it was.
    pub fn multiply_f16(
        &mut self,
        weights: &'a Weights,
        m: usize,
        a: &'a [f16],
        out: &'a mut [f16],
    ) -> Result<(), Error> {
        self.works
            .push(self.engine.product_f16(weights, m, a, out)?);
        Ok(())
    }

    /// Adds a product as [`Engine::multiply_activations`] computes it. Products
    /// that are given the same activations pack them once. Those of outlier
    /// columns come when all other products of the batch are complete, together
    /// as well; [`Batch::submit`] leaves them to [`Submitted::wait`].
    ///
    /// # Errors
    /// Operands that do not fit; the batch is as it was.
    pub fn multiply_activations(
        &mut self,
        weights: &'a Weights,
        activations: &'a QuantisedActivations,
        out: &'a mut [f32],
    ) -> Result<(), Error> {
        let product = self.engine.product_activations(weights, activations, out)?;
        self.works.push(product);
        Ok(())
    }

    /// Products in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.works.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    /// Submits as much as may be in flight, and returns while the NPU computes.
    ///
    /// # Errors
    /// A device that fails; see [`Error`]. Nothing runs any more then, and the
    /// results are worthless.
    pub fn submit(self) -> Result<Submitted<'a>, Error> {
        let mut run = ProductRun::new(self.engine, self.works);
        run.start()?;
        Ok(Submitted(run))
    }

    /// Computes all products.
    ///
    /// # Errors
    /// As [`Batch::submit`].
    pub fn run(self) -> Result<(), Error> {
        ProductRun::new(self.engine, self.works).finish()
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("products", &self.works.len())
            .finish_non_exhaustive()
    }
}

/// Products of which the first steps were submitted.
///
/// Dropping it waits for what was submitted; the results are then worthless.
#[must_use = "the results are there when it was waited for"]
pub struct Submitted<'a>(ProductRun<'a>);

impl Submitted<'_> {
    /// Computes the rest, and returns when all results are there.
    ///
    /// # Errors
    /// As [`Batch::submit`].
    pub fn wait(self) -> Result<(), Error> {
        self.0.finish()
    }
}

impl fmt::Debug for Submitted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitted").finish_non_exhaustive()
    }
}
