// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matmuls with random operands, in any weight format.

use half::f16;
use npu_matmul::quantise::Quantisation;
use npu_matmul::{
    Activations, Engine, Error, Output, OutputRows, PackedWeights, WeightFormat, Weights,
};

use crate::common::{Shape, multiply_all, random_f16, random_i4, random_i8};

enum Rows {
    Integers(Vec<i8>),
    Halves(Vec<f16>),
    Floats(Vec<f32>),
}

#[derive(Debug, PartialEq)]
pub(crate) enum Results {
    Integers(Vec<i32>),
    Halves(Vec<f16>),
    Floats(Vec<f32>),
}

impl Results {
    fn rows(&mut self) -> OutputRows<'_> {
        match self {
            Self::Integers(c) => c.into(),
            Self::Halves(c) => c.into(),
            Self::Floats(c) => c.into(),
        }
    }
}

/// Loaded weights, and activations for them.
pub(crate) struct Matmul {
    pub(crate) weights: PackedWeights,
    m: usize,
    a: Rows,
    /// Binary32 for FP16 weights, unless a test changes it.
    pub(crate) output: Output,
}

impl Matmul {
    /// All formats.
    pub(crate) fn formats() -> impl Iterator<Item = WeightFormat> {
        let quantised = Quantisation::ALL.map(WeightFormat::Quantised);
        let plain = [WeightFormat::Int8, WeightFormat::Int4, WeightFormat::Fp16];
        plain.into_iter().chain(quantised)
    }

    pub(crate) fn new(
        engine: &Engine,
        format: WeightFormat,
        Shape { m, n, k }: Shape,
        seed: u64,
    ) -> Result<Self, Error> {
        let floats = |seed, len| -> Vec<f32> {
            let halves = random_f16(seed, len).into_iter();
            halves.map(f32::from).collect()
        };
        let (of_a, of_b) = (seed, seed + 1);
        let (a, weights) = match format {
            WeightFormat::Int8 => (
                Rows::Integers(random_i8(of_a, m * k)),
                engine.load(Weights::i8(n, k, &random_i8(of_b, n * k)))?,
            ),
            WeightFormat::Int4 => (
                Rows::Integers(random_i4(of_a, m * k)),
                engine.load(Weights::i4(n, k, &random_i4(of_b, n * k)))?,
            ),
            WeightFormat::Fp16 => (
                Rows::Halves(random_f16(of_a, m * k)),
                engine.load(Weights::f16(n, k, &random_f16(of_b, n * k)))?,
            ),
            WeightFormat::Quantised(to) => (
                Rows::Floats(floats(of_a, m * k)),
                engine.load(Weights::quantised(n, k, to, &floats(of_b, n * k)))?,
            ),
        };
        let output = match a {
            Rows::Integers(_) => Output::I32,
            Rows::Halves(_) | Rows::Floats(_) => Output::F32,
        };
        Ok(Self {
            weights,
            m,
            a,
            output,
        })
    }

    /// Results with junk, so that unwritten elements show.
    fn room(&self) -> Results {
        let len = self.m * self.weights.n();
        match self.output {
            Output::I32 => Results::Integers(vec![0x5a5a_5a5a; len]),
            Output::F16 => Results::Halves(vec![f16::NAN; len]),
            Output::F32 => Results::Floats(vec![f32::NAN; len]),
        }
    }

    fn rows(&self) -> Activations<'_> {
        match &self.a {
            Rows::Integers(a) => a.into(),
            Rows::Halves(a) => a.into(),
            Rows::Floats(a) => a.into(),
        }
    }

    pub(crate) fn run(&self, engine: &Engine) -> Result<Results, Error> {
        let mut results = Self::run_all(engine, [self])?;
        Ok(results.remove(0))
    }

    /// Runs several matmuls at once.
    pub(crate) fn run_all<'m>(
        engine: &Engine,
        all: impl IntoIterator<Item = &'m Self>,
    ) -> Result<Vec<Results>, Error> {
        let all: Vec<_> = all.into_iter().collect();
        let mut results: Vec<_> = all.iter().map(|one| one.room()).collect();
        let matmuls = all.iter().zip(&mut results);
        let matmuls = matmuls.map(|(one, c)| (&one.weights, one.m, one.rows(), c.rows()));
        multiply_all(engine, matmuls.collect())?;
        Ok(results)
    }
}
