// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matmuls that check their results, for devices that fail.

use npu_matmul::quantise::Quantisation;
use npu_matmul::{Engine, Error, PackedWeights, Weights, reference};

use crate::common::{multiply, multiply_all, random_i8};

pub(crate) const M: usize = 70;
pub(crate) const N: usize = 150;
pub(crate) const K: usize = 90;

/// Operands, weights on an engine's devices, and expected results.
pub(crate) struct Problem {
    pub(crate) weights: PackedWeights,
    a: Vec<i8>,
    expected: Vec<i32>,
    /// INT4 weights quantised from floats.
    quantised: PackedWeights,
    floats: Vec<f32>,
}

impl Problem {
    /// Weights on a healthy device.
    pub(crate) fn new(engine: &Engine) -> Self {
        Self::load(engine).unwrap()
    }

    /// Weights on any device.
    pub(crate) fn load(engine: &Engine) -> Result<Self, Error> {
        let (a, b) = (random_i8(1, M * K), random_i8(2, N * K));
        let mut floats: Vec<f32> = a.iter().map(|&x| x.into()).collect();
        for row in floats.chunks_mut(K) {
            row[7] *= 40.0;
        }
        let fill = |n: usize, row: &mut [f32]| {
            for (to, &from) in row.iter_mut().zip(&b[n * K..]) {
                *to = from.into();
            }
        };
        Ok(Self {
            weights: engine.load(Weights::i8(N, K, &b))?,
            expected: reference::multiply_i32(M, N, K, &a, &b),
            quantised: engine.load(Weights::quantised_rows(
                N,
                K,
                Quantisation::W4A8Hadamard,
                fill,
            ))?,
            a,
            floats,
        })
    }

    pub(crate) fn run_quantised(&self, engine: &Engine) -> Result<Vec<f32>, Error> {
        let mut c = vec![f32::NAN; M * N];
        multiply(engine, &self.quantised, M, &self.floats, &mut c)?;
        Ok(c)
    }

    pub(crate) fn run(&self, engine: &Engine) -> Result<(), Error> {
        let mut c = vec![0; M * N];
        multiply(engine, &self.weights, M, &self.a, &mut c)?;
        assert!(c == self.expected, "a product that succeeded is wrong");
        Ok(())
    }

    /// Runs the same matmul three times at once, from the same activations.
    pub(crate) fn run_at_once(&self, engine: &Engine) -> Result<(), Error> {
        let mut results = vec![vec![0; M * N]; 3];
        let matmuls = results.iter_mut();
        let matmuls = matmuls.map(|c| (&self.weights, M, (&self.a).into(), c.into()));
        multiply_all(engine, matmuls.collect())?;
        assert!(results.iter().all(|c| *c == self.expected));
        Ok(())
    }
}
