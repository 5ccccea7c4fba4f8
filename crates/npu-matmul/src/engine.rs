// SPDX-License-Identifier: MIT OR Apache-2.0
//! The front door: load weights, multiply.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use half::f16;
use npu_kernels::dequantise::dequantise_row;
use npu_kernels::nibble::{SPLIT_MAX, first_outside};
use rayon::prelude::*;
use rocket_uapi::DevicePool;

use crate::buffers::Buffers;
use crate::counters::{AtomicCounters, Counters};
use crate::dtype::Precision;
use crate::error::Error;
use crate::exec::{Collect, Product, Run, Sums, Work};
use crate::matrix::MatrixView;
use crate::observe::{Observer, Submission};
use crate::pack::{Format, Fp16, Int4, Int8, SplitInt8};
use crate::plan::{JobLimits, Plan, PlanError, PlanOptions, WeightPlan};
use crate::quantise::{INT8_MAX, quantise_row};
use crate::unpack::{Partial, Split};
use crate::weights::Weights;

/// The deepest quantised product whose sums surely fit into 32 bits: each
/// product is at most 127 * 127.
const QUANTISED_K_MAX: usize = (i32::MAX as usize) / (INT8_MAX as usize * INT8_MAX as usize);

/// Distinguishes engines, so that weights are not used with another one.
static NEXT_ENGINE: AtomicU64 = AtomicU64::new(0);

/// Multiplies matrices on a pool of NPU devices.
///
/// C = A x B^T, where A is M x K, B is N x K (the weights: one row an output
/// channel) and C is M x N, all row major. M, N and K are any numbers from 1.
/// Several threads may use one engine at the same time.
pub struct Engine {
    id: u64,
    devices: Vec<Buffers>,
    options: PlanOptions,
    observer: Option<Arc<dyn Observer>>,
    counters: AtomicCounters,
}

impl Engine {
    /// An engine over all devices of the pool: weights are spread over them by
    /// output channel.
    ///
    /// # Errors
    /// [`PlanError::NoDevice`] if the pool is empty.
    pub fn new(pool: DevicePool) -> Result<Self, Error> {
        Self::with_options(pool, PlanOptions::default())
    }

    /// An engine that fixes some of what plans choose; results do not depend
    /// on it.
    ///
    /// # Errors
    /// [`PlanError::NoDevice`] if the pool is empty. Sizes that are not legal
    /// are found when weights are loaded or multiplied.
    pub fn with_options(pool: DevicePool, options: PlanOptions) -> Result<Self, Error> {
        let devices: Vec<_> = pool.devices().iter().cloned().map(Buffers::new).collect();
        if devices.is_empty() {
            return Err(PlanError::NoDevice.into());
        }
        Ok(Self {
            // Only uniqueness matters.
            id: NEXT_ENGINE.fetch_add(1, Ordering::Relaxed),
            devices,
            options,
            observer: None,
            counters: AtomicCounters::default(),
        })
    }

    /// Waits until the driver is done with the last job; see
    /// [`rocket_uapi::Device::settle`]. Dropping engine and weights does it
    /// too; a process that is about to exit without that should call it.
    pub fn settle(&self) {
        for buffers in &self.devices {
            buffers.device().settle();
        }
    }

    /// Shows every job to `observer` from now on.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Loads INT8 weights, `n x k`.
    ///
    /// # Errors
    /// Wrong length, a dimension of 0, no memory; see [`Error`].
    pub fn load_i8(&self, n: usize, k: usize, b: &[i8]) -> Result<Weights, Error> {
        self.load::<Int8>(n, k, b, None)
    }

    /// Loads INT4 weights, `n x k`, each -8 to 7.
    ///
    /// # Errors
    /// As [`Engine::load_i8`], and [`Error::Int4Range`].
    pub fn load_i4(&self, n: usize, k: usize, b: &[i8]) -> Result<Weights, Error> {
        check_int4("B", b)?;
        self.load::<Int4>(n, k, b, None)
    }

    /// Loads FP16 weights, `n x k`.
    ///
    /// # Errors
    /// As [`Engine::load_i8`].
    pub fn load_f16(&self, n: usize, k: usize, b: &[f16]) -> Result<Weights, Error> {
        self.load::<Fp16>(n, k, b, None)
    }

    /// Quantises float weights, `n x k`, to INT8 with a scale for each output
    /// channel (see [`crate::quantise`]) and loads them.
    ///
    /// # Errors
    /// As [`Engine::load_i8`], and [`Error::TooDeep`].
    pub fn load_i8_quantised(&self, n: usize, k: usize, b: &[f32]) -> Result<Weights, Error> {
        let view = matrix("B", b, n, k)?;
        self.load_i8_quantised_rows(n, k, |channel, row| row.copy_from_slice(view.row(channel)))
    }

    /// As [`Engine::load_i8_quantised`], for weights that are not in memory as
    /// floats: `fill(channel, row)` writes the K weights of an output channel.
    /// It is called once for each channel, by several threads.
    ///
    /// # Errors
    /// As [`Engine::load_i8_quantised`].
    pub fn load_i8_quantised_rows(
        &self,
        n: usize,
        k: usize,
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Result<Weights, Error> {
        if k > QUANTISED_K_MAX {
            let max = QUANTISED_K_MAX;
            return Err(Error::TooDeep { k, max });
        }
        // Before anything is allocated for sizes that make no sense.
        self.plan_weights(Precision::Int8, n, k)?;
        let mut integers = vec![0; n * k];
        let scales = integers
            .par_chunks_mut(k)
            .enumerate()
            .map_init(
                || vec![0.0; k],
                |row, (channel, out)| {
                    fill(channel, row);
                    quantise_row(row, out)
                },
            )
            .collect();
        self.load::<Int8>(n, k, &integers, Some(scales))
    }

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
        match weights.precision() {
            Precision::Int8 => self.product::<Int8, _>(weights, m, a, out, sums::<i32>()),
            Precision::Int4 => {
                check_int4("A", a)?;
                self.product::<Int4, _>(weights, m, a, out, sums::<i16>())
            }
            Precision::Fp16 => Err(Error::wrong_weights("int8 or int4", weights)),
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
        if weights.precision() != Precision::Int4 {
            return Err(Error::wrong_weights("int4", weights));
        }
        if let Some(index) = first_outside(a, i8::MIN, SPLIT_MAX) {
            let value = a[index];
            return Err(Error::SplitRange { index, value });
        }
        self.product::<SplitInt8, _>(weights, m, a, out, sums::<Split>())
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
        match weights.precision() {
            Precision::Fp16 => self.product::<Fp16, _>(weights, m, a, out, sums::<f32>()),
            _ => Err(Error::wrong_weights("fp16", weights)),
        }
    }

    /// C = A x B^T for weights that were quantised when they were loaded: the
    /// rows of `a`, `m x k`, are quantised likewise, and `out`, `m x n`, is
    /// `sum * row scale * channel scale`.
    ///
    /// # Errors
    /// As [`Engine::multiply_i32`].
    pub fn multiply_quantised(
        &self,
        weights: &Weights,
        m: usize,
        a: &[f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let Some(scales) = weights.scales() else {
            return Err(Error::wrong_weights("quantised int8", weights));
        };
        let k = weights.k();
        matrix("A", a, m, k)?;
        let mut integers = vec![0; a.len()];
        let row_scales: Vec<f32> = integers
            .par_chunks_mut(k)
            .zip(a.par_chunks(k))
            .map(|(out, row)| quantise_row(row, out))
            .collect();
        // Integers are added up where the floats will be: both have 4 bytes.
        let sums: &mut [i32] = zerocopy::transmute_mut!(out);
        let collect =
            Sums::<i32, _>::new(|row: usize, channels: Range<usize>, part: &mut [i32]| {
                dequantise_row(part, row_scales[row], &scales[channels]);
            });
        self.run(self.product::<Int8, _>(weights, m, &integers, sums, collect)?)
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters.snapshot()
    }

    /// How a product of `m` rows with these weights is computed.
    ///
    /// # Errors
    /// Why it cannot be; see [`PlanError`].
    pub fn plan<'w>(&self, weights: &'w Weights, m: usize) -> Result<Plan<'w>, PlanError> {
        Plan::new(weights.plan(), m, &self.options)
    }

    fn plan_weights(&self, precision: Precision, n: usize, k: usize) -> Result<WeightPlan, Error> {
        let devices = self.devices.len();
        Ok(WeightPlan::new(precision, n, k, devices, &self.options)?)
    }

    fn load<F: Format>(
        &self,
        n: usize,
        k: usize,
        b: &[F::Host],
        scales: Option<Vec<f32>>,
    ) -> Result<Weights, Error> {
        let plan = self.plan_weights(F::PRECISION, n, k)?;
        let b = matrix("B", b, n, k)?;
        let weights = Weights::load::<F>(&self.devices, plan, b, scales, self.id)?;
        self.count(&Counters {
            bytes_to_device: weights.device_bytes(),
            ..Counters::default()
        });
        Ok(weights)
    }

    /// A product that is ready to run.
    fn product<'a, F: Format, C: Collect + 'a>(
        &self,
        weights: &'a Weights,
        m: usize,
        a: &'a [F::Host],
        out: &'a mut [C::Out],
        collect: C,
    ) -> Result<Box<dyn Work<'a> + 'a>, Error> {
        if weights.engine() != self.id {
            return Err(Error::ForeignWeights);
        }
        let plan = self.plan(weights, m.saturating_mul(C::Partial::TILE_ROWS))?;
        let a = matrix("A", a, m, weights.k())?;
        matrix("C", out, m, weights.n())?;
        tracing::trace!(%plan, "product");
        Ok(Box::new(Product::<F, C> {
            weights,
            plan,
            a,
            collect,
            out,
        }))
    }

    fn run<'a>(&'a self, product: Box<dyn Work<'a> + 'a>) -> Result<(), Error> {
        Run::new(self, vec![product]).finish()
    }

    /// Bounds of one job.
    pub(crate) fn limits(&self) -> JobLimits {
        self.options.limits
    }

    pub(crate) fn device_count(&self) -> usize {
        self.devices.len()
    }

    pub(crate) fn buffers(&self, device: usize) -> &Buffers {
        &self.devices[device]
    }

    pub(crate) fn observe(&self, submission: &Submission<'_>) {
        if let Some(observer) = &self.observer {
            observer.submitting(submission);
        }
    }

    pub(crate) fn count(&self, more: &Counters) {
        self.counters.add(more);
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("devices", &self.devices.len())
            .field("options", &self.options)
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

/// Sums that are the result.
fn sums<T: Partial>() -> impl Collect<Partial = T, Out = T::Sum>
where
    T::Sum: Send + Sync,
{
    Sums::<T, _>::new(|_: usize, _: Range<usize>, _: &mut [T::Sum]| {})
}

/// A whole operand, if its length is right.
fn matrix<'a, T>(
    operand: &'static str,
    data: &'a [T],
    rows: usize,
    columns: usize,
) -> Result<MatrixView<'a, T>, Error> {
    MatrixView::new(data, rows, columns).ok_or(Error::OperandLength {
        operand,
        rows,
        columns,
        actual: data.len(),
    })
}

fn check_int4(operand: &'static str, values: &[i8]) -> Result<(), Error> {
    match first_outside(values, -8, 7) {
        None => Ok(()),
        Some(index) => Err(Error::Int4Range {
            operand,
            index,
            value: values[index],
        }),
    }
}
