// SPDX-License-Identifier: MIT OR Apache-2.0
//! The products of an engine, by the kind of their operands and results. Each
//! is made first, which checks it, and run then: alone here, with others in a
//! [`Batch`](crate::Batch).

use std::sync::Arc;

use half::f16;

use super::{Engine, check_int4, check_split, matrix};
use crate::dtype::{Dtype, Results};
use crate::error::Error;
use crate::exec::{Collect, Narrowed, PlannedProduct, ProductRun, ResultTarget, Sums, Work};
use crate::pack::{Format, Fp16, Int4, Int8, SplitInt8};
use crate::prepared::Prepared;
use crate::unpack::{Partial, Split};
use crate::weights::Weights;

impl Engine {
    /// C = A x B^T for INT8 or INT4 weights: `a` is `m x k` (for INT4 each -8
    /// to 7), `out` is `m x n`. Exact whenever the result fits into 32 bits,
    /// else modulo 2^32.
    ///
    /// # Errors
    /// Operands that do not fit, a device that fails; see [`Error`].
    pub fn multiply_i32(
        &self,
        weights: &Weights,
        m: usize,
        a: &[i8],
        out: &mut [i32],
    ) -> Result<(), Error> {
        self.run(self.product_i32(weights, m, a, out)?)
    }

    pub(crate) fn product_i32<'a>(
        &self,
        weights: &'a Weights,
        m: usize,
        a: &'a [i8],
        out: &'a mut [i32],
    ) -> Result<Box<dyn Work<'a> + 'a>, Error> {
        match weights.dtype() {
            Dtype::Int8 => boxed(self.product::<Int8, _>(weights, m, a, out, sums::<i32>())),
            Dtype::Int4 => {
                check_int4("A", a)?;
                boxed(self.product::<Int4, _>(weights, m, a, out, sums::<i16>()))
            }
            Dtype::Fp16 => Err(Error::wrong_weights("int8 or int4", weights)),
        }
    }

    /// C = A x B^T for INT4 weights and 8-bit activations: `a` is `m x k`, each
    /// -128 to 119, `out` is `m x n`. Exact as [`Engine::multiply_i32`] is.
    ///
    /// Each activation is 16 h + l with h and l of four bits, signed. The NPU
    /// multiplies 2 x `m` rows of four bits, so its plan is that of
    /// [`Engine::plan`] for twice the rows.
    ///
    /// # Errors
    /// As [`Engine::multiply_i32`], and [`Error::SplitRange`].
    pub fn multiply_w4a8_i32(
        &self,
        weights: &Weights,
        m: usize,
        a: &[i8],
        out: &mut [i32],
    ) -> Result<(), Error> {
        self.run(self.product_w4a8_i32(weights, m, a, out)?)
    }

    pub(crate) fn product_w4a8_i32<'a>(
        &self,
        weights: &'a Weights,
        m: usize,
        a: &'a [i8],
        out: &'a mut [i32],
    ) -> Result<Box<dyn Work<'a> + 'a>, Error> {
        if weights.dtype() != Dtype::Int4 {
            return Err(Error::wrong_weights("int4", weights));
        }
        check_split(a)?;
        boxed(self.product::<SplitInt8, _>(weights, m, a, out, sums::<Split>()))
    }

    /// C = A x B^T for FP16 weights: `a` is `m x k`, `out` is `m x n`. Each
    /// result lies within (2^-20 + (T - 1) * 2^-24) * sum|a*b| and half an ulp
    /// of the exact one, where the plan cuts K into T tiles.
    ///
    /// # Errors
    /// As [`Engine::multiply_i32`].
    pub fn multiply_f32(
        &self,
        weights: &Weights,
        m: usize,
        a: &[f16],
        out: &mut [f32],
    ) -> Result<(), Error> {
        self.run(self.product_f32(weights, m, a, out)?)
    }

    pub(crate) fn product_f32<'a>(
        &self,
        weights: &'a Weights,
        m: usize,
        a: &'a [f16],
        out: &'a mut [f32],
    ) -> Result<Box<dyn Work<'a> + 'a>, Error> {
        match weights.dtype() {
            Dtype::Fp16 => boxed(self.product::<Fp16, _>(weights, m, a, out, sums::<f32>())),
            _ => Err(Error::wrong_weights("fp16", weights)),
        }
    }

    /// C = A x B^T for FP16 weights, with binary16 results: `a` is `m x k`,
    /// `out` is `m x n`. Each is within the bound of [`Engine::multiply_f32`]
    /// of the exact one, and half an ulp of binary16 further; what is too large
    /// becomes an infinity.
    ///
    /// Where the weights' plan does not cut K, the NPU rounds and writes half
    /// the bytes; else the CPU adds the K tiles up in binary32, and rounds. To
    /// have plans made for it set
    /// [`Conditions::results`](crate::plan::Conditions::results).
    ///
    /// # Errors
    /// As [`Engine::multiply_i32`].
    pub fn multiply_f16(
        &self,
        weights: &Weights,
        m: usize,
        a: &[f16],
        out: &mut [f16],
    ) -> Result<(), Error> {
        self.run(self.product_f16(weights, m, a, out)?)
    }

    pub(crate) fn product_f16<'a>(
        &self,
        weights: &'a Weights,
        m: usize,
        a: &'a [f16],
        out: &'a mut [f16],
    ) -> Result<Box<dyn Work<'a> + 'a>, Error> {
        if weights.dtype() != Dtype::Fp16 {
            return Err(Error::wrong_weights("fp16", weights));
        }
        let prepared = self.prepared(weights, m, Results::Halves)?;
        matrix("C", out, m, weights.n())?;
        if prepared.plan.ty == Dtype::Fp16.matmul_type_of(Results::Halves) {
            boxed(self.planned::<Fp16, _, _>(weights, prepared, a, out, sums::<f16>()))
        } else {
            let out = Narrowed::new(out);
            boxed(self.planned::<Fp16, _, _>(weights, prepared, a, out, sums::<f32>()))
        }
    }

    /// A product that is ready to run.
    pub(crate) fn product<'a, F: Format, C: Collect + 'a>(
        &self,
        weights: &'a Weights,
        m: usize,
        a: &'a [F::Host],
        out: &'a mut [C::Out],
        collect: C,
    ) -> Result<PlannedProduct<'a, F, C, &'a mut [C::Out]>, Error> {
        let rows = m.saturating_mul(C::Partial::TILE_ROWS);
        let prepared = self.prepared(weights, rows, Results::Sums)?;
        matrix("C", out, m, weights.n())?;
        self.planned::<F, C, _>(weights, prepared, a, out, collect)
    }

    /// The same with a plan, whose rows are those of tiles, and a result of
    /// the right length.
    fn planned<'a, F: Format, C: Collect + 'a, T: ResultTarget<Element = C::Out> + 'a>(
        &self,
        weights: &'a Weights,
        prepared: Arc<Prepared>,
        a: &'a [F::Host],
        out: T,
        collect: C,
    ) -> Result<PlannedProduct<'a, F, C, T>, Error> {
        let rows = prepared.plan.m / C::Partial::TILE_ROWS;
        let a = matrix("A", a, rows, weights.k())?;
        tracing::trace!(plan = %prepared.plan, "product");
        Ok(PlannedProduct {
            weights,
            prepared,
            a,
            collect,
            out,
            outliers: None,
        })
    }

    pub(crate) fn run<'a>(&'a self, product: Box<dyn Work<'a> + 'a>) -> Result<(), Error> {
        ProductRun::new(self, vec![product]).finish()
    }
}

/// A product whatever its formats.
pub(crate) fn boxed<'a>(
    product: Result<impl Work<'a> + 'a, Error>,
) -> Result<Box<dyn Work<'a> + 'a>, Error> {
    Ok(Box::new(product?))
}

/// Sums that are the result.
fn sums<T: Partial>() -> impl Collect<Partial = T, Out = T::Sum>
where
    T::Sum: Send + Sync,
{
    Sums::<T>::new()
}
