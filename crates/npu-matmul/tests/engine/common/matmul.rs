// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matmuls with random operands, in any weight format.

use std::sync::Arc;

use half::f16;
use npu_matmul::quantise::Quantisation;
use npu_matmul::reference::Expected;
use npu_matmul::{
    Activations, Engine, Error, Outputs, PackedWeights, WeightFormat, Weights, reference,
};

use crate::common::{Shape, multiply_all, random_f16, random_f32, random_i4, random_i8};

/// An operand.
pub(crate) enum Rows {
    Integers(Vec<i8>),
    Halves(Vec<f16>),
    Floats(Vec<f32>),
}

/// A random operand for this format.
fn random(format: WeightFormat, seed: u64, len: usize) -> Rows {
    match format {
        WeightFormat::Int8 => Rows::Integers(random_i8(seed, len)),
        WeightFormat::Int4 => Rows::Integers(random_i4(seed, len)),
        WeightFormat::Fp16 => Rows::Halves(random_f16(seed, len)),
        WeightFormat::Quantised(_) => Rows::Floats(random_f32(seed, len)),
    }
}

#[derive(Debug, PartialEq)]
pub(crate) enum Results {
    Integers(Vec<i32>),
    Floats(Vec<f32>),
}

impl Results {
    fn rows(&mut self) -> Outputs<'_> {
        match self {
            Self::Integers(c) => c.into(),
            Self::Floats(c) => c.into(),
        }
    }
}

/// Loaded weights, with both operands.
pub(crate) struct Matmul {
    pub(crate) weights: Arc<PackedWeights>,
    pub(crate) m: usize,
    a: Arc<Rows>,
    b: Arc<Rows>,
}

impl Matmul {
    /// The formats whose results have a reference.
    pub(crate) const PLAIN: [WeightFormat; 3] =
        [WeightFormat::Int8, WeightFormat::Int4, WeightFormat::Fp16];

    /// All formats.
    pub(crate) fn formats() -> impl Iterator<Item = WeightFormat> {
        let quantised = Quantisation::ALL.map(WeightFormat::Quantised);
        Self::PLAIN.into_iter().chain(quantised)
    }

    /// A matmul with random operands.
    pub(crate) fn new(
        engine: &Engine,
        format: WeightFormat,
        shape: Shape,
        seed: u64,
    ) -> Result<Self, Error> {
        let Shape { m, n, k } = shape;
        let [a, b] = [(seed, m), (seed + 1, n)].map(|(seed, rows)| random(format, seed, rows * k));
        Self::load(engine, format, shape, a, b)
    }

    /// Matmuls of the same random rows, one for each of these weights: format and output channels.
    pub(crate) fn of_same_rows<const N: usize>(
        engine: &Engine,
        m: usize,
        k: usize,
        weights: [(WeightFormat, usize); N],
    ) -> [Self; N] {
        let a = Arc::new(random(weights[0].0, 0, m * k));
        weights.map(|(format, n)| {
            let b = random(format, n as u64, n * k);
            Self::load(engine, format, Shape { m, n, k }, Arc::clone(&a), b).unwrap()
        })
    }

    /// A matmul of the same weights with `m` other random rows.
    pub(crate) fn with_rows(&self, m: usize, seed: u64) -> Self {
        Self {
            weights: Arc::clone(&self.weights),
            m,
            a: random(self.weights.format(), seed, m * self.weights.k()).into(),
            b: Arc::clone(&self.b),
        }
    }

    pub(crate) fn load(
        engine: &Engine,
        format: WeightFormat,
        Shape { m, n, k }: Shape,
        a: impl Into<Arc<Rows>>,
        b: Rows,
    ) -> Result<Self, Error> {
        let weights = match (format, &b) {
            (WeightFormat::Int4, Rows::Integers(b)) => Weights::i4(n, k, b),
            (_, Rows::Integers(b)) => Weights::i8(n, k, b),
            (_, Rows::Halves(b)) => Weights::f16(n, k, b),
            (WeightFormat::Quantised(to), Rows::Floats(b)) => Weights::quantised(n, k, to, b),
            _ => panic!("floats are quantised"),
        };
        Ok(Self {
            weights: engine.load(weights)?.into(),
            m,
            a: a.into(),
            b: b.into(),
        })
    }

    /// Results with junk, so that unwritten elements show.
    fn room(&self) -> Results {
        let len = self.m * self.weights.n();
        match &*self.a {
            Rows::Integers(_) => Results::Integers(vec![0x5a5a_5a5a; len]),
            Rows::Halves(_) | Rows::Floats(_) => Results::Floats(vec![f32::NAN; len]),
        }
    }

    fn rows(&self) -> Activations<'_> {
        match &*self.a {
            Rows::Integers(a) => a.into(),
            Rows::Halves(a) => a.into(),
            Rows::Floats(a) => a.into(),
        }
    }

    pub(crate) fn run(&self, engine: &Engine) -> Result<Results, Error> {
        let mut results = Self::run_all(engine, [self])?;
        Ok(results.remove(0))
    }

    /// Runs it and compares the results with the reference.
    pub(crate) fn check(&self, engine: &Engine) -> Result<(), Error> {
        self.compare(&self.run(engine)?);
        Ok(())
    }

    /// Compares results with the reference. Quantised matmuls have none here.
    pub(crate) fn compare(&self, results: &Results) {
        let (m, n, k) = (self.m, self.weights.n(), self.weights.k());
        match (&*self.a, &*self.b, results) {
            (Rows::Integers(a), Rows::Integers(b), _) => {
                let expected = Results::Integers(reference::multiply_i32(m, n, k, a, b));
                assert!(
                    *results == expected,
                    "{m} x {n} x {k}, {}",
                    self.weights.dtype()
                );
            }
            (Rows::Halves(a), Rows::Halves(b), Results::Floats(results)) => {
                let k_tiles = self.weights.plan().k_tile_count();
                let expected = reference::multiply_f64(m, n, k, a, b, k_tiles);
                check_floats(results, &expected);
            }
            _ => panic!("no reference"),
        }
    }

    /// Runs several matmuls at once.
    pub(crate) fn run_all<'m>(
        engine: &Engine,
        all: impl IntoIterator<Item = &'m Self>,
    ) -> Result<Vec<Results>, Error> {
        let all: Vec<_> = all.into_iter().collect();
        let mut results: Vec<_> = all.iter().map(|one| one.room()).collect();
        let matmuls = all.iter().zip(&mut results);
        let matmuls = matmuls.map(|(one, c)| (&*one.weights, one.m, one.rows(), c.rows()));
        multiply_all(engine, matmuls.collect())?;
        Ok(results)
    }
}

/// Checks that results are within their bounds.
pub(crate) fn check_floats(results: &[f32], expected: &[Expected]) {
    assert_eq!(results.len(), expected.len());
    for (at, (&got, want)) in results.iter().zip(expected).enumerate() {
        let error = (f64::from(got) - want.value).abs();
        assert!(error <= want.tolerance, "[{at}]: {got}, {want:?}");
    }
}
