// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matmuls that check their results, for devices that fail.

use npu_matmul::quantise::Quantisation;
use npu_matmul::{Engine, Error, WeightFormat, reference};

use crate::common::matmul::{Matmul, Results};
use crate::common::{Shape, random_i8};

const SHAPE: Shape = Shape::new(70, 150, 90);

/// Matmuls of weights on an engine's devices, and expected results.
pub(crate) struct Problem {
    integers: Matmul,
    expected: Results,
    quantised: Matmul,
}

impl Problem {
    /// Weights on a healthy device.
    pub(crate) fn new(engine: &Engine) -> Self {
        Self::load(engine).unwrap()
    }

    /// Weights on any device.
    pub(crate) fn load(engine: &Engine) -> Result<Self, Error> {
        let Shape { m, n, k } = SHAPE;
        let (a, b) = (random_i8(1, m * k), random_i8(2, n * k));
        let to = WeightFormat::Quantised(Quantisation::W4A8Hadamard);
        Ok(Self {
            integers: Matmul::new(engine, WeightFormat::Int8, SHAPE, 1)?,
            expected: Results::Integers(reference::multiply_i32(m, n, k, &a, &b)),
            quantised: Matmul::new(engine, to, SHAPE, 1)?,
        })
    }

    pub(crate) fn run_quantised(&self, engine: &Engine) -> Result<Results, Error> {
        self.quantised.run(engine)
    }

    pub(crate) fn run(&self, engine: &Engine) -> Result<(), Error> {
        let c = self.integers.run(engine)?;
        assert!(c == self.expected, "a product that succeeded is wrong");
        Ok(())
    }

    /// Runs the same matmul three times at once, from the same activations.
    pub(crate) fn run_at_once(&self, engine: &Engine) -> Result<(), Error> {
        let results = Matmul::run_all(engine, [&self.integers; 3])?;
        assert!(results.iter().all(|c| *c == self.expected));
        Ok(())
    }
}
