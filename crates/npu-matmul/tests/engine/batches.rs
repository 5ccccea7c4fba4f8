// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several matmuls at once give the same results as one after the other.

use npu_matmul::plan::JobLimits;
use npu_matmul::{Engine, Error, PlanOptions, WeightFormat, Weights};
use proptest::prelude::*;
use rknpu_regcmd::timing::Machine;

use crate::common::matmul::Matmul;
use crate::common::{
    DEVICES, Random, Shape, counted, engine, multiply_all, plan, random_i8, strict_engine,
};

proptest! {
    #![proptest_config(test_support::cases(40))]

    /// Also if a wave has no room for two matmuls, if a matmul has many steps, and if matmuls have
    /// the same rows: then their steps alternate, and a job has steps of all of them.
    #[test]
    fn matmuls_at_once_give_what_each_gives(
        seed in any::<u32>(),
        limits in prop::option::of((1..20_usize, prop::sample::select(&[4096_usize, 64 << 10][..]))),
        same_rows in prop::option::of(([1..40_usize, 1..300], [1..200_usize, 1..200, 1..200])),
    ) {
        let mut options = PlanOptions::default();
        if let Some((tasks, buffer_bytes)) = limits {
            options.limits = JobLimits { buffer_bytes, tasks, ..options.limits };
            options.row_tile = Some(4);
            options.k_tile = Some(32);
        }
        let (engine, model) = strict_engine(options, DEVICES);
        let any_matmul = |index| {
            let seed = u64::from(seed) + 7 * index;
            let mut random = Random::new(seed);
            let mut size = |most: u64| (random.next() % most + 1) as usize;
            let shape = Shape::new(size(40), size(90), size(200));
            let format = Matmul::formats().nth(size(5) - 1).unwrap();
            Matmul::new(&engine, format, shape, seed).unwrap()
        };
        let matmuls: Vec<_> = match same_rows {
            None => (0..u64::from(seed % 12)).map(any_matmul).collect(),
            Some(([m, k], channels)) => {
                let weights = channels.map(|n| (WeightFormat::Int8, n));
                Matmul::of_same_rows(&engine, m, k, weights).into()
            }
        };
        let alone: Vec<_> = matmuls.iter().map(|matmul| matmul.run(&engine).unwrap()).collect();
        prop_assert_eq!(Matmul::run_all(&engine, &matmuls).unwrap(), alone);
        prop_assert_eq!(model.events(), []);
    }
}

/// Runs them at once and compares the results with the reference.
fn check_all(engine: &Engine, matmuls: &[Matmul]) {
    let results = Matmul::run_all(engine, matmuls).unwrap();
    for (matmul, results) in matmuls.iter().zip(&results) {
        matmul.compare(results);
    }
}

#[test]
fn shared_activations_are_packed_once_and_all_is_one_job_a_device() {
    let engine = engine();
    let (m, n, k) = (32, 96, 256);
    let matmuls = Matmul::of_same_rows(&engine, m, k, [(WeightFormat::Int8, n); 3]);
    let one_by_one = counted(&engine, || {
        for matmul in &matmuls {
            matmul.check(&engine).unwrap();
        }
    });
    let together = counted(&engine, || check_all(&engine, &matmuls));
    assert_eq!((one_by_one.jobs, together.jobs), (9, 3));
    assert_eq!((one_by_one.calls, together.calls), (3, 3));
    assert_eq!(one_by_one.submits, one_by_one.jobs);
    assert_eq!(together.submits, together.jobs);
    // Programs, made once for each set of addresses, come on top.
    let plan = plan(&engine, &matmuls[0].weights, m);
    let packed = plan.predict(&Machine::RK3588).packed_bytes;
    let programs = one_by_one.bytes_to_device - 3 * packed;
    assert!(
        together.bytes_to_device <= packed + programs,
        "{together:?}"
    );
    // The same weights with other activations. Equal values at another address count as others.
    let others = [1, 1, 2].map(|seed| matmuls[0].with_rows(m, seed));
    check_all(&engine, &others);
}

/// Narrow weights are one part of K. Wide ones are two, which read halves of the same buffer, as
/// does the check of first tasks. Only the second half has a tile of 64.
#[test]
fn parts_of_packed_activations_are_not_packed_again() {
    let options = PlanOptions {
        k_tile: Some(128),
        check_first: Some(true),
        ..PlanOptions::default()
    };
    let (engine, model) = strict_engine(options, DEVICES);
    let weights = [96, 768, 768].map(|n| (WeightFormat::Int8, n));
    let matmuls = Matmul::of_same_rows(&engine, 64, 960, weights);
    let plans = matmuls
        .each_ref()
        .map(|matmul| plan(&engine, &matmul.weights, 64));
    assert_eq!(plans.each_ref().map(|plan| plan.k_tiles_per_job), [8, 4, 4]);
    let together = counted(&engine, || check_all(&engine, &matmuls));
    // The rest are programs.
    let packed = plans[0].predict(&Machine::RK3588).packed_bytes;
    assert!((packed..2 * packed).contains(&together.bytes_to_device));
    assert!(engine.counters().checked_tasks > 0);
    assert_eq!(model.events(), []);
}

/// A job of large results ends before the rest of the last wave, if the rest has no more results:
/// the CPU unpacks them while the NPU computes the rest. Small results are not worth it.
#[test]
fn large_results_get_a_separate_job_unless_more_follow() {
    let options = PlanOptions {
        parts: Some(1),
        ..PlanOptions::default()
    };
    let (engine, _) = strict_engine(options, DEVICES);
    // A third of 3072 columns: 256 KiB of results on each device. A third of 96: 8 KiB.
    for (sizes, jobs_of_device) in [
        ([96, 96, 3072], 1),
        ([96, 3072, 96], 2),
        ([3072, 96, 96], 2),
        ([3072, 3072, 96], 2),
        ([3072, 3072, 3072], 2),
    ] {
        let weights = sizes.map(|n| (WeightFormat::Int8, n));
        let matmuls = Matmul::of_same_rows(&engine, 64, 64, weights);
        let counted = counted(&engine, || check_all(&engine, &matmuls));
        assert_eq!(counted.jobs, 3 * jobs_of_device, "{sizes:?}");
    }
}

#[test]
fn wrong_operands_are_refused_before_anything_runs() {
    let engine = engine();
    let b = engine.load(Weights::i8(4, 8, &random_i8(1, 32))).unwrap();
    let a = random_i8(2, 16);
    let (mut c, mut short) = (vec![9; 8], vec![0; 7]);
    let refused = multiply_all(
        &engine,
        vec![
            (&b, 2, (&a).into(), (&mut c).into()),
            (&b, 2, (&a).into(), (&mut short).into()),
        ],
    );
    assert!(matches!(
        refused,
        Err(Error::OperandLength { operand: "C", .. })
    ));
    assert_eq!((c, engine.counters().jobs), (vec![9; 8], 0));
    engine.run([]).unwrap();
}
