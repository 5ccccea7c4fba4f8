// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work that checks its results, for devices that fail.

use std::sync::LazyLock;

use npu_matmul::quantise::Quantisation;
use npu_matmul::{Engine, Error, WeightFormat};

use crate::common::attention::{CASE, Case, Operands};
use crate::common::faults::small_jobs;
use crate::common::matmul::{Matmul, Results};
use crate::common::{DEVICES, Shape, strict_engine};

const SHAPE: Shape = Shape::new(70, 150, 90);

/// Each of three devices has several tiles.
pub(crate) const LONG: Case = Case {
    heads: 8,
    kv_heads: 8,
    rows: 40,
    keys: 700,
    head_dim: 32,
    value_dim: 32,
    ..CASE
};

/// Matmuls of weights on an engine's devices.
pub(crate) struct Problem {
    integers: Matmul,
    quantised: Matmul,
}

/// Results of the integers and of the quantised matmul on a healthy device: the same for each
/// problem.
static EXPECTED: LazyLock<[Results; 2]> = LazyLock::new(|| {
    let (engine, _) = strict_engine(small_jobs(), DEVICES);
    let Problem {
        integers,
        quantised,
    } = Problem::new(&engine);
    let results = [&integers, &quantised].map(|matmul| matmul.run(&engine).unwrap());
    integers.compare(&results[0]);
    results
});

/// A way to use a device. It fails a test if a result is wrong.
pub(crate) type Use = fn(&Problem, &Engine) -> Result<(), Error>;

impl Problem {
    pub(crate) const USES: [Use; 4] = [
        Self::run,
        Self::run_quantised,
        Self::run_at_once,
        |_, engine| attend(engine),
    ];

    /// Weights on a healthy device.
    pub(crate) fn new(engine: &Engine) -> Self {
        Self::load(engine).unwrap()
    }

    /// Weights on any device.
    pub(crate) fn load(engine: &Engine) -> Result<Self, Error> {
        let to = WeightFormat::Quantised(Quantisation::W8A8Hadamard);
        Ok(Self {
            integers: Matmul::new(engine, WeightFormat::Int8, SHAPE, 1)?,
            quantised: Matmul::new(engine, to, SHAPE, 1)?,
        })
    }

    pub(crate) fn run(&self, engine: &Engine) -> Result<(), Error> {
        let [expected, _] = &*EXPECTED;
        assert!(self.integers.run(engine)? == *expected, "a wrong result");
        Ok(())
    }

    fn run_quantised(&self, engine: &Engine) -> Result<(), Error> {
        let [_, expected] = &*EXPECTED;
        assert!(self.quantised.run(engine)? == *expected, "a wrong result");
        Ok(())
    }

    /// Runs the same matmul three times at once, from the same activations.
    pub(crate) fn run_at_once(&self, engine: &Engine) -> Result<(), Error> {
        let [expected, _] = &*EXPECTED;
        let results = Matmul::run_all(engine, [&self.integers; 3])?;
        assert!(results.iter().all(|c| c == expected), "a wrong result");
        Ok(())
    }

    /// Uses a healthy device in every way.
    pub(crate) fn run_all(&self, engine: &Engine) {
        for of in Self::USES {
            of(self, engine).unwrap();
        }
    }
}

/// Attention in many tiles.
pub(crate) fn attend(engine: &Engine) -> Result<(), Error> {
    let mut operands = Operands::new(&LONG, 1);
    engine.attend([operands.call()])?;
    assert!(operands.nmse() <= 1e-5);
    Ok(())
}
