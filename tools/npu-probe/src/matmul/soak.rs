// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random matmuls for `npu-probe selftest --seconds`, whose results are known exactly.

use std::fmt;

use half::f16;
use npu_matmul::{Dtype, Error, JobFailure, reference};
use rocket_uapi::Device;

use crate::base::exit::Failure;
use crate::base::shape::MatmulShape;
use crate::matmul::data::{MatmulOperands, SplitMix64};
use crate::matmul::engine_run::{self, MatmulResult};
use crate::matmul::expected::{CpuResult, ResultComparison};
use crate::matmul::report::FailedJobs;

/// Bits of the largest M, K and N. Most matmuls are small; some have several tiles in each
/// dimension.
const BITS: [u64; 3] = [9, 12, 10];

/// Most multiplications of a matmul, since the CPU computes it too.
const WORK_MAX: usize = 1 << 21;

/// Most repetitions of a matmul.
const TURNS: u64 = 6;

/// Most files over which a matmul is spread.
const FILES: u64 = 3;

/// One random matmul, repeated a few times.
#[derive(Clone, Debug)]
pub(crate) struct SoakMatmul {
    pub(crate) kind: Dtype,
    shape: MatmulShape,
    files: usize,
    turns: u64,
    seed: u64,
}

impl SoakMatmul {
    pub(crate) fn random(random: &mut SplitMix64) -> Self {
        let kind = Dtype::ALL[random.below(Dtype::ALL.len() as u64) as usize];
        let shape = loop {
            let [m, k, n] = BITS.map(|bits| size(random, bits));
            if m * k * n <= WORK_MAX {
                break MatmulShape { m, k, n };
            }
        };
        Self {
            kind,
            shape,
            files: 1 + random.below(FILES) as usize,
            turns: 1 + random.below(TURNS),
            seed: random.below(u64::MAX),
        }
    }

    /// Multiplies and compares; reports each matmul, without elements if it was lost because
    /// the driver killed its job twice.
    ///
    /// Two matrices alternate as A, so that a result left over from the matmul before is
    /// wrong.
    pub(crate) fn run(
        &self,
        device: &Device,
        mut tell: impl FnMut(&ResultComparison, FailedJobs) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let MatmulShape { m, k, n } = self.shape;
        let mut random = SplitMix64::new(self.seed);
        let b = self.integers(&mut random, n * k);
        let sides = [(); 2].map(|()| {
            let a = self.integers(&mut random, m * k);
            let want = CpuResult::exact(reference::multiply_i32(m, n, k, &a, &b));
            (self.operands(a, b.clone()), want)
        });
        let engine = engine_run::engine_of_board(device, self.files)?;
        let weights = sides[0].0.load(&engine, self.kind, n, k)?;
        for (operands, want) in sides.iter().cycle().take(self.turns as usize) {
            let mut matmul = MatmulResult::unwritten(operands, m * n);
            let before = FailedJobs::of(&engine);
            let multiplied = matmul.multiply(&engine, &weights, m, operands);
            let compared = match multiplied {
                // If this process checks too late, as on a busy host, a kill is almost certain
                // but not observable.
                Err(Error::Job {
                    source: JobFailure::Killed | JobFailure::DroppedOrKilled,
                    ..
                }) => ResultComparison::default(),
                Err(error) => return Err(error.into()),
                Ok(()) => want.compare(&matmul, n),
            };
            tell(&compared, FailedJobs::since(&engine, before))?;
        }
        Ok(())
    }

    /// Random integers, for FP16 too, so that no sum is rounded.
    fn integers(&self, random: &mut SplitMix64, len: usize) -> Vec<i8> {
        let bits = match self.kind {
            Dtype::Int8 => 8,
            Dtype::Int4 | Dtype::Fp16 => 4,
        };
        (0..len).map(|_| random.signed(bits) as i8).collect()
    }

    fn operands(&self, a: Vec<i8>, b: Vec<i8>) -> MatmulOperands {
        match self.kind {
            Dtype::Int8 | Dtype::Int4 => MatmulOperands::Integers([a, b]),
            Dtype::Fp16 => {
                MatmulOperands::Floats([a, b].map(|x| x.into_iter().map(f16::from).collect()))
            }
        }
    }
}

/// A random number of up to `bits` bits; each bit length is equally likely.
fn size(random: &mut SplitMix64, bits: u64) -> usize {
    let bits = 1 + random.below(bits);
    1 + random.below((1 << bits) - 1) as usize
}

impl fmt::Display for SoakMatmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, shape) = (self.kind, self.shape);
        let (files, seed) = (self.files, self.seed);
        write!(f, "{kind} {shape} over {files} files, seed {seed}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn cases_are_of_all_kinds_and_sizes() {
        let mut random = SplitMix64::new(1);
        let cases: Vec<SoakMatmul> = (0..2000).map(|_| SoakMatmul::random(&mut random)).collect();
        let kinds: BTreeSet<String> = cases
            .iter()
            .map(|case| format!("{} {}", case.kind, case.files))
            .collect();
        assert_eq!(kinds.len(), 3 * Dtype::ALL.len());
        for dimension in 0..3 {
            let sizes = cases.iter().map(|case| case.shape);
            let sizes = sizes.map(|MatmulShape { m, k, n }| [m, k, n][dimension]);
            assert_eq!(sizes.clone().min(), Some(1));
            assert!(sizes.max() > Some(256));
        }
    }
}
