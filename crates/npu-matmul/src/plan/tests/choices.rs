// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is chosen where there is a choice.

use rknpu_regcmd::{DmaEngine, ReuseRule};
use std::sync::Arc;

use super::*;
use crate::Profile;

/// A profile with which tasks use all that CBUF still holds.
fn with_reuse() -> Profile {
    let mut profile = Profile::clone(&Profile::built_in());
    profile.choices = profile.choices.with_reuse(ReuseRule::Always);
    profile.choices.int8_spare_bank.value = false;
    profile
}

/// Tiles of K that are chosen for products of so many rows.
fn k_tiles(dtype: Dtype, rows: usize, k: usize, n: usize) -> usize {
    let options = PlanOptions {
        conditions: Conditions {
            rows,
            ..Conditions::default()
        },
        ..PlanOptions::default()
    };
    WeightPlan::new(dtype, n, k, 3, &options)
        .unwrap()
        .k_tile_count()
}

#[test]
fn k_is_cut_where_rows_would_read_b_again() {
    // One pass over B is enough: no sums.
    assert_eq!(k_tiles(Dtype::Int8, 64, 4096, 4096), 1);
    assert_eq!(k_tiles(Dtype::Fp16, 16, 4096, 4096), 1);
    assert_eq!(k_tiles(Dtype::Int8, 512, 64, 64), 1);
    // Deeper tiles would leave 64 rows and read B eight times.
    assert!(k_tiles(Dtype::Int8, 512, 4096, 4096) > 1);
    // Beyond the deepest legal tile there is no choice.
    assert!(k_tiles(Dtype::Int8, 4, 32768, 64) > 1);
    assert_eq!(weights(Dtype::Int4, 64, 4096, 1).k_tile, 384);
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn the_cheapest_cut_is_chosen_and_every_bound_is_one(
        dtype in dtype(),
        rows in 1..1500_usize,
        k in 1..12_000_usize,
        n in 1..8_000_usize,
        devices in 1..6_usize,
    ) {
        let options = PlanOptions {
            conditions: Conditions { rows, ..Conditions::default() },
            // Else copies are those of typical weights.
            int4_depth: Some(INT4_K_TILE_MAX),
            ..PlanOptions::default()
        };
        let all = candidates(dtype, n, k, devices, &options).unwrap();
        let chosen = WeightPlan::new(dtype, n, k, devices, &options).unwrap();
        let chosen = all.iter().find(|other| other.weights == chosen).unwrap();
        let best = all.iter().map(Candidate::cost_ps).min();
        prop_assert_eq!(Some(chosen.cost_ps()), best);
        if dtype == Dtype::Fp16 {
            let halves = PlanOptions {
                conditions: Conditions { results: Results::Halves, ..options.conditions },
                ..options.clone()
            };
            let halves = candidates(dtype, n, k, devices, &halves).unwrap();
            for (sums, halves) in all.iter().zip(&halves) {
                let (sums, halves) = (&sums.prediction, &halves.prediction);
                if sums.partial_sums == 0 {
                    prop_assert!(halves.work.bytes.of(DmaEngine::DpuWrite) >= (rows * n * 2) as u64);
                    prop_assert!(halves.work.bytes.of(DmaEngine::DpuWrite) < sums.work.bytes.of(DmaEngine::DpuWrite));
                } else {
                    prop_assert_eq!(halves, sums);
                }
            }
        }
        for candidate in &all {
            let p = &candidate.prediction;
            prop_assert!(p.npu_ps >= p.mac_ps, "{:?}", p);
            // Each phase of a task is rounded up by itself.
            prop_assert!(p.npu_ps + 4 * p.tasks >= p.parts.total_ps(), "{:?}", p);
            // Each operand crosses at least once; padding only adds.
            let bits = dtype.input_bits() as u64;
            prop_assert!(p.work.bytes.of(DmaEngine::Weight) * 8 >= (n * k) as u64 * bits);
            prop_assert!(p.work.bytes.of(DmaEngine::Feature) * 8 >= (rows * k) as u64 * bits);
            let plan = Plan::new(&candidate.weights, rows, &options).unwrap();
            let [(a, no_a_stays), (b, no_b_stays)] = fetched(&plan);
            prop_assert!(a <= no_a_stays && b <= no_b_stays);
            prop_assert!(p.work.bytes.of(DmaEngine::DpuWrite) >= (rows * n * dtype.output_bytes()) as u64);
            let cuts = candidate.weights.k_tile_count() as u64 - 1;
            prop_assert_eq!(p.partial_sums, cuts * (rows * n) as u64);
            prop_assert!(p.jobs <= p.tasks && p.tasks > cuts);
        }
    }
}

/// Bytes of A and of B that a plan's tasks fetch, and would fetch if nothing
/// stayed in CBUF.
fn fetched(plan: &Plan) -> [(u64, u64); 2] {
    let work = plan.predict(&rknpu_regcmd::timing::Machine::RK3588).work;
    let p = plan.weights.dtype;
    let (mut a, mut b) = (0, 0);
    for task in plan
        .steps()
        .flat_map(|step| step.jobs)
        .flat_map(|job| job.tasks)
    {
        let (m, k, n) = (task.m_padded, task.k_padded, task.n_padded);
        a += layout::activation_bytes(p, m as usize, k as usize) as u64;
        b += layout::weight_bytes(p, n as usize, k as usize) as u64;
    }
    let of = |engine| work.bytes.of(engine);
    [(of(DmaEngine::Feature), a), (of(DmaEngine::Weight), b)]
}

#[test]
fn operands_that_stay_are_fetched_once() {
    // Three tiles of channels meet the same rows.
    let whole = PlanOptions {
        parts: Some(1),
        profile: Arc::new(with_reuse()),
        ..PlanOptions::default()
    };
    let w = weights(Dtype::Int8, 3 * 8192, 256, 1);
    let plan = Plan::new(&w, 64, &whole).unwrap();
    assert_eq!(plan.stationary, Stationary::Activations);
    let [a, b] = fetched(&plan);
    assert_eq!((a, b), ((64 * 256, 3 * 64 * 256), (b.1, b.1)));
    // Several tiles of rows meet a few small channels, also where K is cut.
    for k_tile in [None, Some(128)] {
        let options = PlanOptions {
            k_tile,
            ..whole.clone()
        };
        let w = WeightPlan::new(Dtype::Int8, 64, 256, 1, &options).unwrap();
        let plan = Plan::new(&w, 4 * 1020, &options).unwrap();
        assert_eq!(plan.stationary, Stationary::Weights);
        let [a, b] = fetched(&plan);
        assert_eq!((a, b), ((a.1, a.1), (64 * 256, 4 * 64 * 256)));
    }
}

#[test]
fn rows_make_room_for_weights_where_that_is_faster() {
    use rknpu_regcmd::timing::{DriverCosts, Machine};
    // 160 rows of K = 2048 leave two banks, 112 leave five: enough for 128 KiB
    // of weights. But fewer rows are more tasks, 10 instead of 7.
    let options = |driver, row_tile| PlanOptions {
        k_tile: Some(2048),
        row_tile,
        parts: Some(1),
        profile: Arc::new(Profile {
            machine: Machine::RK3588.with_driver(driver),
            ..with_reuse()
        }),
        ..PlanOptions::default()
    };
    let w = WeightPlan::new(
        Dtype::Int8,
        64,
        2048,
        1,
        &options(DriverCosts::MAINLINE, None),
    )
    .unwrap();
    let mut chosen = Vec::new();
    for driver in [DriverCosts::NONE, DriverCosts::MAINLINE] {
        let predict = |row_tile| {
            let options = options(driver, row_tile);
            let plan = Plan::new(&w, 1120, &options).unwrap();
            let prediction = plan.predict(&options.profile.machine);
            (plan.row_tile, plan.stationary, prediction)
        };
        let (rows, stationary, best) = predict(None);
        chosen.push((rows, stationary));
        for forced in [112, 160] {
            assert!(best.npu_ps <= predict(Some(forced)).2.npu_ps);
        }
    }
    assert_eq!(chosen[0], (112, Stationary::Weights));
}

#[test]
fn a_plan_can_be_written_down() {
    let weights = weights(Dtype::Int8, 96, 256, 3);
    let plan = Plan::new(&weights, 16, &PlanOptions::default()).unwrap();
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["ty"], "Int8ToInt32");
    assert_eq!(json["m"], 16);
    assert_eq!(json["row_tile"], plan.row_tile);
    let blocks = json["weights"]["blocks"].as_array().unwrap();
    assert_eq!(blocks.len(), weights.blocks.len());
    assert_eq!(blocks[0]["n"]["end"], weights.blocks[0].n.end);
}
