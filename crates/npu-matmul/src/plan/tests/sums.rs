// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sums of K tiles on the NPU.

use super::*;
use crate::emit;

fn on_npu() -> PlanOptions {
    PlanOptions {
        accumulate: Accumulate::Npu,
        ..PlanOptions::default()
    }
}

/// An atom of a buffer of partial results: which K tiles are in it, a bit each,
/// and whether a task has read it.
#[derive(Clone, Copy, Default)]
struct Atom {
    tiles: u128,
    place: Option<(usize, usize, usize)>,
    was_read: bool,
}

/// Runs a job on sets of K tiles, and checks that each atom of its output is the
/// sum of the same place of all of them; that nothing is written which a task has
/// read or written; and that the CPU finds it where it looks.
fn check_job(job: &JobPlan, limits: &JobLimits) {
    const ATOM: usize = rknpu_regcmd::ATOM_BYTES as usize;
    let k_tiles = job.band.k_tiles.len();
    assert!(job.output_bytes <= limits.buffer_bytes && job.partial_bytes <= limits.buffer_bytes);
    assert!(job.task_count() <= limits.tasks);
    assert_eq!(job.results_per_tile(), 1);
    let programs = emit::programs(job).unwrap();
    assert_eq!(programs.len(), job.task_count());

    let mut partials = vec![Atom::default(); job.partial_bytes / ATOM];
    let mut output = vec![Atom::default(); job.output_bytes / ATOM];
    let mut time = 0;
    for task in &job.tasks {
        let (m, k, n) = (task.m_padded, task.k_padded, task.n_padded);
        let (row_tile, k_tile) = (task.activation / k_tiles, task.activation % k_tiles);
        let bytes = layout::output_bytes(job.ty, m as usize, n as usize);
        let first = task.c as usize / ATOM;
        for (index, atom) in partials[first..first + bytes / ATOM].iter_mut().enumerate() {
            assert_eq!(atom.tiles, 0, "written twice");
            atom.tiles = 1 << k_tile;
            atom.place = Some((row_tile, task.n.start, index));
        }
        time += task_time_bound_ns(Dtype::Int8, m as usize, k as usize, n as usize);
    }
    for sum in &job.sums {
        let atoms = (sum.width * sum.channels / 4) as usize;
        for index in 0..atoms {
            let mut read = |offset: u32| {
                let atom = &mut partials[offset as usize / ATOM + index];
                atom.was_read = true;
                *atom
            };
            let (a, b) = (read(sum.a), read(sum.b));
            assert!(a.place.is_some() && a.place == b.place && a.tiles & b.tiles == 0);
            let result = Atom {
                tiles: a.tiles | b.tiles,
                place: a.place,
                was_read: false,
            };
            let to = match sum.to {
                SumPlace::Partials(at) => &mut partials[at as usize / ATOM + index],
                SumPlace::Output(at) => &mut output[at as usize / ATOM + index],
            };
            assert!(to.tiles == 0 && !to.was_read, "work in place");
            *to = result;
        }
        // Three passes, and the fixed part of a task.
        time += 100_000 + 3 * 16 * atoms as u64;
    }
    assert!(u128::from(time) <= limits.time.as_nanos());

    let all = (1 << k_tiles) - 1;
    assert!(output.iter().all(|atom| atom.tiles == all));
    for (row_tile, first) in (0..job.band.activations.len()).step_by(k_tiles).enumerate() {
        for task in job.tasks_of(first) {
            let found = output[task.c as usize / ATOM].place;
            assert_eq!(found, Some((row_tile, task.n.start, 0)));
        }
    }
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn each_result_is_the_sum_of_all_tiles(
        m in 1..300_usize,
        k in 33..3000_usize,
        n in 1..400_usize,
        devices in 1..4_usize,
        k_tile in 1..12_usize,
        row_tile in prop::option::of(1..40_usize),
        n_tile in prop::option::of(1..6_usize),
        limits in limits(),
        replicate in any::<Option<bool>>(),
    ) {
        let options = PlanOptions {
            limits,
            replicate,
            row_tile: row_tile.map(|tile| 4 * tile),
            k_tile: Some(32 * k_tile),
            n_tile: n_tile.map(|tile| 32 * tile),
            ..on_npu()
        };
        let weights = WeightPlan::new(Dtype::Int8, n, k, devices, &options).unwrap();
        let plan = match Plan::new(&weights, m, &options) {
            Ok(plan) => plan,
            Err(PlanError::JobLimits { .. }) => {
                prop_assert_ne!(limits, JobLimits::default());
                return Ok(());
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        };
        for step in plan.steps() {
            for job in &step.jobs {
                if job.band.k_tiles.len() > 1 {
                    check_job(job, &limits);
                } else {
                    prop_assert!(job.sums.is_empty() && job.partial_bytes == 0);
                }
            }
        }
    }
}

#[test]
fn the_cpu_reads_and_adds_no_partial_sums() {
    use rknpu_regcmd::timing::Machine;
    let (m, n, k) = (256, 1024, 4096);
    let options = |accumulate| PlanOptions {
        k_tile: Some(1024),
        accumulate,
        ..PlanOptions::default()
    };
    let [cpu, npu] = [Accumulate::Cpu, Accumulate::Npu].map(|accumulate| {
        let options = options(accumulate);
        let weights = WeightPlan::new(Dtype::Int8, n, k, 1, &options).unwrap();
        let plan = Plan::new(&weights, m, &options).unwrap();
        (plan.predict(&Machine::RK3588), plan.cache_bytes())
    });
    let result = (m * n * 4) as u64;
    assert_eq!(cpu.0.partial_sums, 3 * (m * n) as u64);
    assert_eq!((npu.0.partial_sums, npu.0.read_bytes), (0, result));
    // Three sums of two operands; each K tile and each sum is written.
    assert_eq!(npu.0.traffic.summed, 6 * result);
    assert_eq!(npu.0.traffic.outputs, 7 * result);
    assert_eq!(
        (cpu.0.traffic.summed, cpu.0.traffic.outputs),
        (0, 4 * result)
    );
    // In pieces of 512 KiB.
    assert_eq!(npu.0.tasks - cpu.0.tasks, 3 * result / (512 << 10));
    assert!(npu.0.npu_ps > cpu.0.npu_ps);
    assert_eq!(cpu.1.needed - npu.1.needed, 3 * result);
    assert_eq!(cpu.1.passed - npu.1.passed, 3 * result);
}

#[test]
fn the_npu_adds_only_what_cannot_overflow() {
    let options = PlanOptions {
        k_tile: Some(4096),
        ..on_npu()
    };
    let of = |dtype, k| {
        let options = PlanOptions {
            k_tile: Some(if dtype == Dtype::Int4 { 480 } else { 4096 }),
            ..options.clone()
        };
        let weights = WeightPlan::new(dtype, 64, k, 1, &options).unwrap();
        Plan::new(&weights, 8, &options).unwrap().accumulate
    };
    assert_eq!(of(Dtype::Int8, NPU_SUM_DEPTH_MAX), Accumulate::Npu);
    assert_eq!(of(Dtype::Int8, NPU_SUM_DEPTH_MAX + 1), Accumulate::Cpu);
    assert_eq!(of(Dtype::Int8, 4096), Accumulate::Cpu, "one K tile");
    for other in [Dtype::Fp16, Dtype::Int4] {
        assert_eq!(of(other, 8192), Accumulate::Cpu);
    }
    let deepest = NPU_SUM_DEPTH_MAX as i64 * 128 * 128;
    assert!(deepest <= i32::MAX.into() && deepest + 128 * 128 > i32::MAX.into());
}

#[test]
fn what_holds_partial_results_is_planned_for() {
    let (cpu, npu) = (PlanOptions::default(), on_npu());
    let weights = WeightPlan::new(Dtype::Int8, 4096, 4096, 1, &cpu).unwrap();
    let fit = |options| {
        let mut memory = MemoryPlan::new(1, u64::MAX, options);
        (0..).take_while(|_| memory.add(&weights).is_ok()).count()
    };
    // Two steps' buffers of 64 MiB, and programs of sums.
    let (more, layer) = (fit(&cpu) - fit(&npu), 16 << 20);
    assert!(more >= (128 << 20) / layer, "{more}");
}
