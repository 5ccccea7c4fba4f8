// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures one matmul.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use npu_matmul::{Counters, Dtype, Engine, Profile};
use rknpu_regcmd::timing::seconds;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::base::exit::Failure;
use crate::base::flags::OperandDtypes;
use crate::base::shape::MatmulShape;
use crate::matmul::data::MatmulOperands;
use crate::matmul::engine_run::MatmulResult;
use crate::matmul::expected::CpuResult;
use crate::matmul::report::{FailedJobs, TimeSpread};

/// Seed of the random numbers: the values do not matter.
const SEED: u64 = 1;

/// Times of one matmul. Device times are measured on an NPU and modelled on the software
/// model; `wall` is the wall time of either.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Measurement {
    pub(crate) dtype: OperandDtypes,
    #[serde(flatten)]
    pub(crate) shape: MatmulShape,
    /// The tiling, as text.
    pub(crate) plan: String,
    /// Measured matmuls.
    #[serde(rename = "products")]
    pub(crate) matmuls: usize,
    /// Per matmul, on average: SUBMIT calls, register programs and bytes.
    pub(crate) submits: f64,
    pub(crate) tasks: f64,
    pub(crate) bytes_to_device: f64,
    pub(crate) bytes_from_device: f64,
    /// Bytes per matmul that PREP_BO and FINI_BO passed through the CPU's caches, and the bytes
    /// needed.
    pub(crate) cache_bytes: f64,
    pub(crate) cache_bytes_needed: u64,
    /// Bytes that the CPU packed once, when it loaded B.
    pub(crate) bytes_of_weights: u64,
    pub(crate) load_ms: f64,
    /// From call to return, including packing and reading.
    pub(crate) wall_ms: TimeSpread,
    /// User and system time of this process per matmul; includes the software model's work.
    pub(crate) cpu_ms: f64,
    /// 10^9 operations per second of wall time, if jobs ran.
    pub(crate) gops: Option<f64>,
    /// NPU time that the timing model predicts at the assumed clock.
    pub(crate) modelled_npu_ms: f64,
    pub(crate) modelled_gops: f64,
    /// Lower bound of the time: multiplications alone or memory alone.
    pub(crate) bound_ms: f64,
    pub(crate) bound_by: String,
    /// Share of the bound that was reached, if jobs ran on an NPU.
    pub(crate) share_of_bound: Option<f64>,
    pub(crate) modelled_share_of_bound: f64,
    /// Operations per byte of A, B and C, each moved once.
    pub(crate) operations_per_byte: f64,
    /// Those of all matmuls: they make `wall` slower than the NPU is.
    #[serde(default)]
    pub(crate) failed_jobs: FailedJobs,
}

/// 10^9 operations per second.
fn rate(operations: f64, ms: f64) -> f64 {
    operations / ms.max(f64::MIN_POSITIVE) / 1e6
}

/// A matmul to measure, and the number of repetitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredMatmul {
    pub(crate) kind: OperandDtypes,
    pub(crate) shape: MatmulShape,
    pub(crate) repeat: usize,
    pub(crate) is_model: bool,
}

impl MeasuredMatmul {
    /// Loads random weights, multiplies once unmeasured, checks two rows of the
    /// result, and measures the rest. `profile` is the engine's.
    pub(crate) fn measure(
        &self,
        engine: &Engine,
        profile: &Profile,
    ) -> Result<Measurement, Failure> {
        let MatmulShape { m, k, n } = self.shape;
        let [a, b, c] = self.shape.lengths()?;
        let operands = &MatmulOperands::random(self.kind, [a, b], SEED);
        let before = engine.counters();
        let start = Instant::now();
        let weights = operands.load(engine, self.kind.dtype(), n, k)?;
        let load = start.elapsed();
        let to_device = engine.counters().bytes_to_device;
        let packed_bytes = to_device.saturating_sub(before.bytes_to_device);
        let gemm = engine.prepare(&weights, m)?;
        let plan = gemm.plan();
        let prediction = plan.predict(&profile.machine);
        let [needed, _] = plan.cache_bytes(&profile.choices);
        let (text, k_tiles) = (plan.to_string(), weights.plan().k_tile_count());

        let mut matmul = MatmulResult::unwritten(operands, c);
        // The first run allocates buffers and starts threads, so it is not measured.
        matmul.multiply(engine, &weights, m, operands)?;
        check(&matmul, self.shape, operands, k_tiles)?;

        let warm = engine.counters();
        let cpu = cpu_time();
        let mut times = Vec::new();
        for _ in 0..self.repeat {
            let start = Instant::now();
            matmul.multiply(engine, &weights, m, operands)?;
            times.push(milliseconds(start.elapsed()));
        }
        let cpu = cpu_time().saturating_sub(cpu);
        let done = engine.counters();
        let wall = TimeSpread::of(times);
        let each = |count: fn(&Counters) -> u64| {
            count(&done).saturating_sub(count(&warm)) as f64 / self.repeat as f64
        };
        let submits = each(|c| c.submits);
        let operations = 2.0 * m as f64 * k as f64 * n as f64;
        let bound_ms = seconds(prediction.bound_ps()) * 1e3;
        // Without jobs there is no rate, and times of the software model do not apply to an NPU.
        let ran = submits > 0.0;
        let npu_ms = seconds(prediction.npu_ps) * 1e3;
        let share = |ms: f64| bound_ms / ms.max(f64::MIN_POSITIVE);
        Ok(Measurement {
            dtype: self.kind,
            shape: self.shape,
            plan: text,
            matmuls: self.repeat,
            submits,
            tasks: each(|c| c.tasks),
            bytes_to_device: each(|c| c.bytes_to_device),
            bytes_from_device: each(|c| c.bytes_from_device),
            cache_bytes: each(|c| c.prep_bytes + c.fini_bytes),
            cache_bytes_needed: needed,
            bytes_of_weights: packed_bytes,
            load_ms: milliseconds(load),
            wall_ms: wall,
            cpu_ms: milliseconds(cpu) / self.repeat as f64,
            gops: ran.then(|| rate(operations, wall.median)),
            modelled_npu_ms: npu_ms,
            modelled_gops: rate(operations, npu_ms),
            bound_ms,
            bound_by: prediction.bound_by().to_string(),
            share_of_bound: (ran && !self.is_model).then(|| share(wall.median)),
            modelled_share_of_bound: share(npu_ms),
            operations_per_byte: operations / operand_bytes(self.kind.dtype(), self.shape),
            failed_jobs: FailedJobs::of(engine),
        })
    }
}

/// Bytes of A, B and C on the NPU.
fn operand_bytes(dtype: Dtype, MatmulShape { m, k, n }: MatmulShape) -> f64 {
    let inputs = (m as f64 + n as f64) * k as f64 * dtype.input_bits() as f64 / 8.0;
    inputs + m as f64 * n as f64 * dtype.output_bytes() as f64
}

/// Compares the first and the last row with the CPU's: a wrong result has no speed.
fn check(
    matmul: &MatmulResult,
    shape: MatmulShape,
    operands: &MatmulOperands,
    k_tiles: usize,
) -> Result<(), Failure> {
    let ends = [0, shape.m - 1];
    match CpuResult::wrong_row(matmul, shape, operands, k_tiles, ends) {
        None => Ok(()),
        Some(row) => Err(Failure::Device(anyhow!(
            "row {row} of {shape} is wrong, so its speed was not measured. Run `npu-probe \
             --shape {shape}` to see the wrong elements"
        ))),
    }
}

/// User and system time of this process.
fn cpu_time() -> Duration {
    // The clock begins at 0.
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_put_in_order() {
        let spread = TimeSpread::of(vec![3.0, 1.0, 2.0]);
        assert_eq!((spread.best, spread.median, spread.worst), (1.0, 2.0, 3.0));
        assert_eq!(TimeSpread::of(Vec::new()), TimeSpread::default());
    }

    #[test]
    fn bytes_are_counted_once() {
        let shape = MatmulShape { m: 2, k: 8, n: 4 };
        // (2 + 4) * 8 inputs and 8 outputs of 32 bits. An INT4 input takes half a byte, its sum
        // 16 bits.
        assert_eq!(operand_bytes(Dtype::Int8, shape), 48.0 + 32.0);
        assert_eq!(operand_bytes(Dtype::Int4, shape), 24.0 + 16.0);
        assert_eq!(operand_bytes(Dtype::Fp16, shape), 96.0 + 32.0);
    }

    #[test]
    fn a_wrong_row_has_no_speed() {
        let operands = MatmulOperands::Integers([vec![1, 2, 3, 4], vec![1, 1, 2, 2]]);
        let shape = MatmulShape { m: 2, k: 2, n: 2 };
        for (last, is_right) in [(14, true), (15, false)] {
            let matmul = MatmulResult::Integers(vec![3, 6, 7, last]);
            assert_eq!(check(&matmul, shape, &operands, 1).is_ok(), is_right);
        }
    }
}
