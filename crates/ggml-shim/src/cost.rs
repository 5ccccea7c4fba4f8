// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a product takes, by the timing model: nothing here was measured on a
//! board, and the same question always has the same answer.

use npu_matmul::Plan;
use npu_matmul::plan::{PlanOptions, WeightPlan};

use crate::describe::MEGAHERTZ;
use crate::engine;
use crate::precision::ComputeType;
use crate::supports::MAX_INT8_K;

/// Bytes that move when the CPU adds an element to a sum: two are read, one is
/// written. [`npu_matmul::plan::Conditions::sum_ps`] is the time of these.
const SUM_BYTES: u64 = 12;

/// What a stage of the rotation costs an element, picoseconds: an A76 loads and
/// stores four elements a clock from and to its first cache, so that two of
/// them at 2.2 GHz take 57 ps. Not measured on a board.
const ROTATION_STAGE_PS: u64 = 57;

/// Bytes of an F32 number.
const F32_BYTES: u64 = 4;

/// Modelled time of a product, picoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Time of the NPU, with all of its cores.
    pub(crate) npu_ps: u64,
    /// Time of the CPU: converting, laying out and adding up.
    pub(crate) cpu_ps: u64,
}

impl Cost {
    /// One after the other, though they overlap in part: the plans of
    /// `npu-matmul` are chosen by the same sum.
    pub(crate) fn total_ps(self) -> u64 {
        self.npu_ps.saturating_add(self.cpu_ps)
    }
}

/// The machine that products are planned for.
#[derive(Debug, Clone)]
pub(crate) struct PlanTarget {
    /// File descriptors of the NPU that are open: one for each core.
    pub(crate) fds: usize,
    /// Options of plans, as the engine has them.
    pub(crate) options: PlanOptions,
}

impl PlanTarget {
    /// Rows that plans and precisions are chosen for.
    pub(crate) fn usual_rows(&self) -> usize {
        self.options.conditions.rows
    }

    /// The clock that times are modelled for.
    pub(crate) fn megahertz(&self) -> u64 {
        self.options.conditions.machine.clock_hz / MEGAHERTZ
    }

    /// `m` rows of activations times weights of `n x k`; `None` if they cannot
    /// be multiplied so.
    pub(crate) fn cost(
        &self,
        precision: ComputeType,
        [n, k]: [usize; 2],
        m: usize,
    ) -> Option<Cost> {
        if precision.is_quantised() && k > MAX_INT8_K {
            return None;
        }
        let quantised = engine::options(precision, k);
        let (operands, options) = match precision {
            ComputeType::Fp16 => (npu_matmul::Dtype::Fp16, self.options.clone()),
            _ => (
                quantised.operands.dtype(),
                quantised.plan_options(k, &self.options),
            ),
        };
        let passes = match precision {
            ComputeType::Fp16 => 1,
            _ => quantised.operands.passes(),
        };
        let weights = WeightPlan::new(operands, n, k, self.fds, &options).ok()?;
        let plan = Plan::new(&weights, m.checked_mul(passes)?, &options).ok()?;
        let prediction = plan.predict(&options.conditions.machine);
        let stages = quantised
            .rotation
            .map_or(0, |rotation| u64::from(rotation.block().ilog2()));

        let [m, n, k] = [m as u64, n as u64, k as u64];
        let activations = m.checked_mul(k)?;
        let outputs = m.checked_mul(n)?;
        // Floats are read and rounded; then read again and laid out for each
        // device that needs them. The first of the results that make an output
        // is read and written; adding the others is counted apart.
        let rounded = activations.checked_mul(operands.input_bits() as u64)? / 8;
        let bytes = activations
            .checked_mul(F32_BYTES)?
            .checked_add(rounded)?
            .checked_add(prediction.packed_bytes.checked_mul(2)?)?
            .checked_add(outputs.checked_mul(2 * F32_BYTES)?)?;
        let moved_ps = bytes.checked_mul(self.options.conditions.sum_ps)? / SUM_BYTES;
        let sums_ps = prediction
            .partial_sums
            .checked_mul(options.conditions.sum_ps)?;
        let rotated_ps = activations.checked_mul(stages * ROTATION_STAGE_PS)?;
        Some(Cost {
            npu_ps: prediction.npu_ps,
            cpu_ps: moved_ps.checked_add(sums_ps)?.checked_add(rotated_ps)?,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Three descriptors, and the default conditions.
    pub(crate) fn machine() -> PlanTarget {
        PlanTarget {
            fds: 3,
            options: PlanOptions::default(),
        }
    }

    fn cost(precision: ComputeType, m: usize) -> Cost {
        machine().cost(precision, [1024, 4096], m).unwrap()
    }

    #[test]
    fn a_rotation_costs_the_cpu_its_stages_and_the_npu_nothing() {
        let (plain, rotated) = (
            cost(ComputeType::Int8, 64),
            cost(ComputeType::Int8Hadamard, 64),
        );
        assert_eq!(plain.npu_ps, rotated.npu_ps);
        // log2(4096) stages for each of 64 x 4096 activations.
        let stages = 12 * 64 * 4096 * ROTATION_STAGE_PS;
        assert_eq!(rotated.cpu_ps, plain.cpu_ps + stages);
    }

    #[test]
    fn split_activations_are_two_rows_for_the_npu() {
        // Of the same groups of K.
        let (one, two) = (
            cost(ComputeType::Int4Hadamard, 512),
            cost(ComputeType::W4A8, 512),
        );
        assert!(2 * two.npu_ps > 3 * one.npu_ps, "{two:?} for {one:?}");
    }

    #[test]
    fn more_rows_and_a_slower_clock_take_longer() {
        let mut slow = machine();
        slow.options.conditions.machine.clock_hz /= 3;
        for precision in ComputeType::ALL {
            let (few, many) = (cost(precision, 64), cost(precision, 512));
            assert!(few.npu_ps < many.npu_ps && few.cpu_ps < many.cpu_ps);
            let slow = slow.cost(precision, [1024, 4096], 512).unwrap();
            assert!(slow.npu_ps > many.npu_ps);
        }
    }

    #[test]
    fn what_cannot_be_planned_has_no_cost() {
        for size in [[0, 64], [64, 0], [usize::MAX, 64], [64, usize::MAX]] {
            for precision in ComputeType::ALL {
                assert_eq!(machine().cost(precision, size, 64), None, "{size:?}");
            }
        }
        assert_eq!(machine().cost(ComputeType::Fp16, [64, 64], 0), None);
        assert_eq!(
            machine().cost(ComputeType::W4A8, [64, 64], usize::MAX),
            None
        );
    }
}
