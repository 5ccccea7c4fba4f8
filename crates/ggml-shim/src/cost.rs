// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a product takes, by the timing model: nothing here was measured on a
//! board, and the same question always has the same answer.

use npu_matmul::Plan;
use npu_matmul::WeightFormat;
use npu_matmul::plan::{KernelCost, PlanOptions, WeightPlan};
use npu_matmul::quantise::rotate;

use crate::describe::MEGAHERTZ;
use crate::engine;
use crate::precision::ComputeType;
use crate::supports::MAX_INT8_K;

/// Modelled time of a product, picoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Time of the NPU, with all of its cores.
    pub(crate) npu_ps: u64,
    /// Time of the CPU: rounding and rotating before the product, packing and unpacking
    /// in it.
    pub(crate) cpu_ps: u64,
    /// From the first rounded activation to the last result.
    pub(crate) call_ps: u64,
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
        self.options.profile.machine.clock_hz / MEGAHERTZ
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
        let format = engine::format(precision);
        let (dtype, options) = (format.dtype(), format.plan_options(k, &self.options));
        let weights = WeightPlan::new(dtype, n, k, self.fds, &options).ok()?;
        let plan = Plan::new(&weights, m.checked_mul(format.passes())?, &options).ok()?;
        let stages = match format {
            WeightFormat::Quantised(quantise) if quantise.rotated => rotate::stages(k),
            _ => 0,
        };
        let host = &options.profile.host;
        let activations = (m as u64).checked_mul(k as u64)?;
        let rounded_ps = host.kernel_ps(activations, KernelCost::round(dtype));
        let rotated = activations.checked_mul(stages.into())?;
        let rotated_ps = host.kernel_ps(rotated, KernelCost::ROTATION_STAGE);
        let before_ps = rounded_ps.checked_add(rotated_ps)?;
        let call = plan.call(&options);
        Some(Cost {
            npu_ps: plan.predict(&options.profile.machine).npu_ps,
            cpu_ps: before_ps.checked_add(call.cpu_ps())?,
            call_ps: before_ps.checked_add(call.call_ps)?,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use npu_matmul::Profile;

    use super::*;

    /// Three descriptors, at the clock of most published figures.
    pub(crate) fn machine() -> PlanTarget {
        PlanTarget {
            fds: 3,
            options: PlanOptions {
                profile: Profile::built_in().at_clock(600_000_000).into(),
                ..PlanOptions::default()
            },
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
        let host = machine().options.profile.host;
        let stages = host.kernel_ps(12 * 64 * 4096, KernelCost::ROTATION_STAGE);
        assert_eq!(rotated.cpu_ps, plain.cpu_ps + stages);
        assert_eq!(rotated.call_ps, plain.call_ps + stages);
    }

    #[test]
    fn split_activations_are_two_rows_for_the_npu() {
        // Of the same groups of K.
        let (one, two) = (
            cost(ComputeType::Int4Hadamard, 512),
            cost(ComputeType::W4A8, 512),
        );
        assert!(4 * two.npu_ps > 5 * one.npu_ps, "{two:?} for {one:?}");
    }

    #[test]
    fn more_rows_and_a_slower_clock_take_longer() {
        let mut slow = machine();
        let profile = &slow.options.profile;
        slow.options.profile = Arc::new(profile.at_clock(profile.machine.clock_hz / 3));
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
