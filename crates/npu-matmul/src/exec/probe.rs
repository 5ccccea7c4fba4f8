// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trial job on each device, for callers that stopped using an NPU and try it again.

use half::f16;

use crate::engine::Engine;
use crate::engine::weights::Weights;
use crate::exec::Again;
use crate::numbers::dtype::Dtype;
use crate::numbers::operands::{Activations, Outputs};
use crate::numbers::reference::multiply_i32;
use crate::plan::error::Error;
use crate::plan::kept_plan::next_id;

/// Rows of the trial matmul.
const ROWS: usize = 4;

/// Channels of its operands: whole groups of each precision.
const DEPTH: usize = 64;

impl Engine {
    /// Runs a small matmul on all devices, a job on each at the same time, and compares every
    /// element with the exact result. The matmul is FP16; INT8 if FP16 is disabled.
    ///
    /// A job that the driver kills or drops does not run again here. So if this succeeds, each job
    /// ran at once.
    ///
    /// # Errors
    /// As [`Engine::load`] and [`Engine::run`]; [`Error::WrongProbe`].
    pub fn probe(&self) -> Result<(), Error> {
        let dtype = if self.is_usable(Dtype::Fp16) {
            Dtype::Fp16
        } else {
            Dtype::Int8
        };
        let columns = dtype.kernel_group() * self.devices.len();
        // Other values each time: a result left over from the last trial is wrong.
        let seed = next_id() as usize;
        let a = integers(ROWS, seed);
        let b = integers(columns, seed / MODULUS);
        let exact = multiply_i32(ROWS, columns, DEPTH, &a, &b);
        let [got, expected] = match dtype {
            Dtype::Fp16 => {
                let [a, b] = [a, b].map(|values| values.into_iter().map(f16::from).collect());
                let (a, b): (Vec<f16>, Vec<f16>) = (a, b);
                let mut c = vec![f32::NAN; exact.len()];
                self.probe_with(
                    Weights::f16(columns, DEPTH, &b),
                    (&a[..]).into(),
                    (&mut c[..]).into(),
                )?;
                [c, exact.iter().map(|&value| value as f32).collect()]
            }
            Dtype::Int8 | Dtype::Int4 => {
                let mut c = vec![i32::MIN; exact.len()];
                self.probe_with(
                    Weights::i8(columns, DEPTH, &b),
                    (&a[..]).into(),
                    (&mut c[..]).into(),
                )?;
                [c, exact].map(|values| values.iter().map(|&value| value as f32).collect())
            }
        };
        let pairs = got.into_iter().zip(expected);
        let wrong = pairs
            .enumerate()
            .find(|(_, (got, expected))| got != expected);
        wrong.map_or(Ok(()), |(at, (got, expected))| {
            Err(Error::WrongProbe {
                dtype,
                column: at % columns,
                got,
                expected,
            })
        })
    }

    fn probe_with(
        &self,
        weights: Weights<'_>,
        a: Activations<'_>,
        c: Outputs<'_>,
    ) -> Result<(), Error> {
        let weights = self.load(weights)?;
        let matmul = self.prepare(&weights, ROWS)?;
        Ok(self.run_again([matmul.call(a, c)], Again::Never)?)
    }
}

/// Values of [`integers`] lie in a range of this length.
const MODULUS: usize = 7;

/// Small integers, for FP16 too: their sums of products are exact.
fn integers(rows: usize, seed: usize) -> Vec<i8> {
    let value = |at: usize| (at / DEPTH * 3 + at % DEPTH + at % DEPTH / 5 + seed) % MODULUS;
    (0..rows * DEPTH).map(|at| value(at) as i8 - 3).collect()
}
