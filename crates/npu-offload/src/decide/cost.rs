// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicted time of an offloaded matmul. The same question always gets the same answer.

use npu_matmul::Plan;
use npu_matmul::attention::AttentionShape;
use npu_matmul::plan::{PlanOptions, WeightPlan};
use npu_matmul::predict::{CallTime, call_together};
use npu_matmul::profile::{CostSide, KernelCost};
use npu_matmul::quantise::{INT8_K_MAX, Quantisation, rotate};

use crate::decide::precision::ComputeType;

/// The machine that matmuls are planned for.
#[derive(Debug, Clone)]
pub struct PlanTarget {
    /// Number of open file descriptors of the NPU: one for each core.
    pub fds: usize,
    options: PlanOptions,
    /// Made of `options`, which thus cannot be changed: by these times are predicted.
    timed: PlanOptions,
}

impl PlanTarget {
    /// Creates a target with `fds` file descriptors and these plan options. Its times are likely
    /// ones.
    #[must_use]
    pub fn new(fds: usize, options: PlanOptions) -> Self {
        let timed = options.on(CostSide::Likely);
        Self {
            fds,
            options,
            timed,
        }
    }

    /// Plan options of the engine.
    #[must_use]
    pub const fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// The same target with times of this side. Its plans are the same.
    #[must_use]
    pub fn on(&self, side: CostSide) -> Self {
        Self {
            timed: self.options.on(side),
            ..self.clone()
        }
    }

    /// The likely times of the same target, with a CPU that computes no jobs of the NPU.
    #[must_use]
    pub fn npu_alone(&self) -> Self {
        let options = PlanOptions {
            cpu_jobs: Some(false),
            ..self.options.clone()
        };
        Self::new(self.fds, options)
    }

    /// Creates the target of an uncalibrated RK3588 at this clock.
    #[must_use]
    pub fn at_clock(clock_hz: u64) -> Self {
        Self::new(3, PlanOptions::uncalibrated(clock_hz))
    }

    /// The clock that times are modelled for, MHz.
    #[must_use]
    pub fn megahertz(&self) -> u64 {
        self.options.profile.machine.clock_hz / 1_000_000
    }

    /// Plans weights of `n x k`; `None` if they cannot be multiplied in this precision.
    #[must_use]
    pub fn weight_plan(&self, precision: ComputeType, [n, k]: [usize; 2]) -> Option<WeightPlan> {
        if precision.quantisation().is_some() && k > INT8_K_MAX {
            return None;
        }
        WeightPlan::new(precision.format().dtype(), n, k, self.fds, &self.options).ok()
    }

    /// Bytes of packed weights of `n x k`; `None` like [`Self::weight_plan`].
    #[must_use]
    pub fn packed_bytes(&self, precision: ComputeType, size: [usize; 2]) -> Option<u64> {
        Some(self.weight_plan(precision, size)?.device_bytes())
    }

    /// Time in which the CPU packs FP16 weights of `n x k`, picoseconds, without getting their
    /// buffers.
    #[must_use]
    pub fn packing_ps(&self, [n, k]: [usize; 2]) -> u64 {
        let profile = &self.timed.profile;
        let elements = (n as u64).saturating_mul(k as u64);
        let packed_ps = profile.host.kernel_ps(elements, KernelCost::PACK_COLUMNS);
        packed_ps.saturating_add(profile.dirty_sync_ps(elements.saturating_mul(2)))
    }

    /// Picoseconds by which the first call after 50 ms without a job is longer.
    #[must_use]
    pub fn resume_ps(&self) -> u64 {
        self.timed.profile.resume_ps()
    }

    /// Picoseconds in which the kernel provides `bytes` of new buffers and the CPU first writes
    /// them.
    #[must_use]
    pub fn first_touch_ps(&self, bytes: u64) -> u64 {
        self.timed.profile.first_touch_ps(bytes)
    }

    /// Predicts the time of attention; `None` if it cannot be computed.
    #[must_use]
    pub fn attention(&self, batch: &AttentionShape) -> Option<CallTime> {
        batch.call(self.fds, &self.timed).ok()
    }

    /// Predicts `m` rows times weights of `n x k`; `None` if this precision cannot compute them.
    #[must_use]
    pub fn matmul(&self, precision: ComputeType, size: [usize; 2], m: usize) -> Option<CallTime> {
        self.matmuls(&[(precision, size)], m)
    }

    /// Predicts the same `m` rows times several weights, each `n x k`, in one call that prepares
    /// the rows once; `None` if a precision cannot compute its weights.
    #[must_use]
    pub fn matmuls(&self, weights: &[(ComputeType, [usize; 2])], m: usize) -> Option<CallTime> {
        let plan = |&(precision, size)| Some((precision, self.weight_plan(precision, size)?));
        let planned: Option<Vec<_>> = weights.iter().map(plan).collect();
        self.planned(&planned?, m)
    }

    /// Predicts the same `m` rows times several planned weights in one call, as
    /// [`Self::matmuls`].
    ///
    /// Packing includes rounding and rotating the rows. The engine quantises rows while the NPU
    /// computes with earlier ones; those for FP16 weights are rounded before the call.
    pub(crate) fn planned(
        &self,
        weights: &[(ComputeType, WeightPlan)],
        m: usize,
    ) -> Option<CallTime> {
        let host = &self.timed.profile.host;
        let (mut plans, mut prepared, mut prepare_ps) = (Vec::new(), Vec::new(), [0_u64; 2]);
        for (precision, planned) in weights {
            let (precision, k) = (*precision, planned.k);
            plans.push(Plan::new(planned, m, &self.options).ok()?);
            if prepared.contains(&(precision, k)) {
                continue;
            }
            prepared.push((precision, k));
            let is_rotated = precision
                .quantisation()
                .is_some_and(Quantisation::is_rotated);
            let stages = if is_rotated { rotate::stages(k) } else { 0 };
            let activations = (m as u64).checked_mul(k as u64)?;
            let rounded_ps = host.kernel_ps(activations, KernelCost::round(planned.dtype));
            let rotated = activations.checked_mul(stages.into())?;
            let rotated_ps = host.kernel_ps(rotated, KernelCost::ROTATION_STAGE);
            let before_ps = &mut prepare_ps[usize::from(precision.quantisation().is_some())];
            *before_ps = before_ps.checked_add(rounded_ps.checked_add(rotated_ps)?)?;
        }
        #[cfg(test)]
        tests::count_tasks(&plans);
        let plans: Vec<_> = plans.iter().collect();
        let [before_ps, quantise_ps] = prepare_ps;
        let call = call_together(&plans, quantise_ps, &self.timed);
        Some(CallTime {
            pack_ps: before_ps.checked_add(call.pack_ps)?,
            call_ps: before_ps.checked_add(call.call_ps)?,
            ..call
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use npu_matmul::Dtype;

    use super::*;

    thread_local! {
        static MODELLED_TASKS: Cell<usize> = const { Cell::new(0) };
    }

    /// Number of tasks whose times this thread has modelled.
    pub(crate) fn modelled_tasks() -> usize {
        MODELLED_TASKS.get()
    }

    pub(super) fn count_tasks(plans: &[Plan]) {
        let jobs = plans
            .iter()
            .flat_map(Plan::steps)
            .flat_map(|step| step.jobs);
        let tasks: usize = jobs.map(|job| job.tasks.len()).sum();
        MODELLED_TASKS.set(modelled_tasks() + tasks);
    }

    const SIZE: [usize; 2] = [1024, 4096];

    fn target() -> PlanTarget {
        PlanTarget::at_clock(600_000_000)
    }

    fn cost(precision: ComputeType, m: usize) -> CallTime {
        target().matmul(precision, SIZE, m).unwrap()
    }

    #[test]
    fn a_rotation_costs_the_cpu_its_stages() {
        let options = target().options;
        let weights = target().weight_plan(ComputeType::Int8Hadamard, SIZE);
        let plan = Plan::new(&weights.unwrap(), 64, &options).unwrap();
        let rotated = cost(ComputeType::Int8Hadamard, 64);
        let timed = options.on(CostSide::Likely);
        let host = &timed.profile.host;
        // log2(4096) stages for each of 64 x 4096 activations, and the rounding.
        let stages = host.kernel_ps(12 * 64 * 4096, KernelCost::ROTATION_STAGE);
        let rounded = host.kernel_ps(64 * 4096, KernelCost::round(Dtype::Int8));
        let call = plan.call(&timed);
        assert_eq!(rotated.cpu_ps(), call.cpu_ps() + rounded + stages);
        assert_eq!(rotated.call_ps, call.call_ps + rounded + stages);
    }

    #[test]
    fn more_rows_and_a_slower_clock_take_longer() {
        let slow = PlanTarget::at_clock(200_000_000);
        for precision in ComputeType::ALL {
            let (few, many) = (cost(precision, 64), cost(precision, 512));
            assert!(few.npu_ps < many.npu_ps && few.cpu_ps() < many.cpu_ps());
            let slow = slow.matmul(precision, SIZE, 512).unwrap();
            assert!(slow.npu_ps > many.npu_ps);
        }
    }

    /// Gate and up of a feed-forward network: the rows are prepared once, and the NPU computes one
    /// matmul while the CPU unpacks the other.
    #[test]
    fn matmuls_of_the_same_rows_take_less_together() {
        for m in [4, 512] {
            for precision in ComputeType::ALL {
                let one = cost(precision, m);
                let both = target().matmuls(&[(precision, SIZE); 2], m).unwrap();
                assert!(both.call_ps < 2 * one.call_ps, "{precision:?} {m}");
                assert!(both.pack_ps < 2 * one.pack_ps, "{precision:?} {m}");
                assert!(both.call_ps >= both.npu_ps.max(both.cpu_ps()));
                // The CPU computes the rest in place.
                if both.computed_ps == 0 {
                    assert_eq!(both.unpack_ps, 2 * one.unpack_ps);
                }
            }
        }
    }

    #[test]
    fn fewer_bits_take_less_memory() {
        let bytes = |precision| target().packed_bytes(precision, SIZE).unwrap();
        let elements = 1024 * 4096;
        let packed = ComputeType::ALL.map(bytes);
        assert_eq!(packed, [2 * elements, elements]);
    }

    #[test]
    fn sizes_without_a_plan_have_no_cost() {
        for size in [[0, 64], [64, 0], [usize::MAX, 64], [64, usize::MAX]] {
            for precision in ComputeType::ALL {
                assert_eq!(target().matmul(precision, size, 64), None, "{size:?}");
            }
        }
        assert_eq!(target().matmul(ComputeType::Fp16, [64, 64], 0), None);
        let int8 = ComputeType::Int8Hadamard;
        assert_eq!(target().matmul(int8, [64, 64], usize::MAX), None);
        let deep = [64, INT8_K_MAX + 32];
        assert_eq!(target().matmul(int8, deep, 64), None);
    }
}
