// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a product takes, by the timing model: the same question always has the same answer.

use npu_matmul::plan::{KernelCost, PlanOptions, WeightPlan};
use npu_matmul::quantise::rotate;
use npu_matmul::{Plan, WeightFormat};
use rknpu_regcmd::timing::Machine;

use crate::precision::ComputeType;

/// Longest dot product in INT8: up to here the sum of products of magnitude
/// 127 * 127 surely fits into 32 bits (127 * 127 * 2^17 < 2^31).
pub const MAX_INT8_K: usize = 1 << 17;

/// Modelled time of a product, picoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OffloadCost {
    /// Time of the NPU, with all of its cores.
    pub npu_ps: u64,
    /// Time of the CPU: rounding and rotating before the product, packing and unpacking
    /// in it.
    pub cpu_ps: u64,
    /// From the first rounded activation to the last result: CPU and NPU overlap.
    pub call_ps: u64,
}

/// The machine that products are planned for.
#[derive(Debug, Clone)]
pub struct PlanTarget {
    /// File descriptors of the NPU that are open: one for each core.
    pub fds: usize,
    /// Options of plans, as the engine has them.
    pub options: PlanOptions,
}

impl PlanTarget {
    /// Plans with these options, on so many file descriptors.
    #[must_use]
    pub const fn new(fds: usize, options: PlanOptions) -> Self {
        Self { fds, options }
    }

    /// An RK3588 of which nothing was measured, at this clock.
    #[must_use]
    pub fn at_clock(clock_hz: u64) -> Self {
        Self::new(3, PlanOptions::uncalibrated(clock_hz))
    }

    fn machine(&self) -> &Machine {
        &self.options.profile.machine
    }

    /// The clock that times are modelled for, MHz.
    #[must_use]
    pub fn megahertz(&self) -> u64 {
        self.machine().clock_hz / 1_000_000
    }

    /// How weights of `n x k` are cut; `None` if they cannot be multiplied in this precision.
    #[must_use]
    pub fn weight_plan(&self, precision: ComputeType, [n, k]: [usize; 2]) -> Option<WeightPlan> {
        if precision.is_quantised() && k > MAX_INT8_K {
            return None;
        }
        let format = precision.format();
        let options = format.plan_options(k, &self.options);
        WeightPlan::new(format.dtype(), n, k, self.fds, &options).ok()
    }

    /// Bytes of such weights once they are packed; `None` as above.
    #[must_use]
    pub fn packed_bytes(&self, precision: ComputeType, size: [usize; 2]) -> Option<u64> {
        Some(self.weight_plan(precision, size)?.device_bytes())
    }

    /// `m` rows of activations times weights of `n x k`; `None` if they cannot
    /// be multiplied so.
    #[must_use]
    pub fn cost(&self, precision: ComputeType, size: [usize; 2], m: usize) -> Option<OffloadCost> {
        let k = size[1];
        let weights = self.weight_plan(precision, size)?;
        let format = precision.format();
        let options = format.plan_options(k, &self.options);
        let plan = Plan::new(&weights, m.checked_mul(format.passes())?, &options).ok()?;
        let stages = match format {
            WeightFormat::Quantised(quantise) if quantise.rotated => rotate::stages(k),
            _ => 0,
        };
        let host = &options.profile.host;
        let activations = (m as u64).checked_mul(k as u64)?;
        let rounded_ps = host.kernel_ps(activations, KernelCost::round(format.dtype()));
        let rotated = activations.checked_mul(stages.into())?;
        let rotated_ps = host.kernel_ps(rotated, KernelCost::ROTATION_STAGE);
        let before_ps = rounded_ps.checked_add(rotated_ps)?;
        let call = plan.call(&options);
        Some(OffloadCost {
            npu_ps: plan.predict(self.machine()).npu_ps,
            cpu_ps: before_ps.checked_add(call.cpu_ps())?,
            call_ps: before_ps.checked_add(call.call_ps)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: [usize; 2] = [1024, 4096];

    fn target() -> PlanTarget {
        PlanTarget::at_clock(600_000_000)
    }

    fn cost(precision: ComputeType, m: usize) -> OffloadCost {
        target().cost(precision, SIZE, m).unwrap()
    }

    #[test]
    fn a_rotation_costs_the_cpu_its_stages_and_the_npu_nothing() {
        let (plain, rotated) = (
            cost(ComputeType::Int8, 64),
            cost(ComputeType::Int8Hadamard, 64),
        );
        assert_eq!(plain.npu_ps, rotated.npu_ps);
        // log2(4096) stages for each of 64 x 4096 activations.
        let host = &target().options.profile.host;
        let stages = host.kernel_ps(12 * 64 * 4096, KernelCost::ROTATION_STAGE);
        assert_eq!(rotated.cpu_ps, plain.cpu_ps + stages);
        assert_eq!(rotated.call_ps, plain.call_ps + stages);
    }

    #[test]
    fn split_activations_are_two_rows_for_the_npu() {
        // Of the same groups of K.
        let (one, two) = (
            cost(ComputeType::Int4Hadamard, 512),
            cost(ComputeType::W4A8Hadamard, 512),
        );
        assert!(4 * two.npu_ps > 5 * one.npu_ps, "{two:?} for {one:?}");
    }

    #[test]
    fn more_rows_and_a_slower_clock_take_longer() {
        let slow = PlanTarget::at_clock(200_000_000);
        for precision in ComputeType::ALL {
            let (few, many) = (cost(precision, 64), cost(precision, 512));
            assert!(few.npu_ps < many.npu_ps && few.cpu_ps < many.cpu_ps);
            let slow = slow.cost(precision, SIZE, 512).unwrap();
            assert!(slow.npu_ps > many.npu_ps);
        }
    }

    #[test]
    fn int8_takes_half_the_memory() {
        let bytes = |precision| target().packed_bytes(precision, SIZE).unwrap();
        assert_eq!(bytes(ComputeType::Fp16), 2 * 1024 * 4096);
        assert_eq!(bytes(ComputeType::Int8Hadamard), 1024 * 4096);
        assert_eq!(bytes(ComputeType::W4A8), 1024 * 4096 / 2);
    }

    #[test]
    fn what_cannot_be_planned_has_no_cost() {
        for size in [[0, 64], [64, 0], [usize::MAX, 64], [64, usize::MAX]] {
            for precision in ComputeType::ALL {
                assert_eq!(target().cost(precision, size, 64), None, "{size:?}");
            }
        }
        assert_eq!(target().cost(ComputeType::Fp16, [64, 64], 0), None);
        assert_eq!(target().cost(ComputeType::W4A8, [64, 64], usize::MAX), None);
        let deep = [64, MAX_INT8_K + 32];
        assert_eq!(target().cost(ComputeType::Int8, deep, 64), None);
    }
}
