// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matmuls of few rows: sequences that are decoded together.

use rknpu_regcmd::DmaEngine;
use rknpu_regcmd::timing::{DriverCosts, Machine};

use super::*;

/// K and N of the matrices of the layers of Llama 3.2 1B and Gemma 3 1B.
const MATRICES: [(usize, usize); 9] = [
    (2048, 2048),
    (2048, 512),
    (2048, 8192),
    (8192, 2048),
    (1152, 1024),
    (1152, 256),
    (1024, 1152),
    (1152, 6912),
    (6912, 1152),
];

const CLOCKS: [u64; 2] = [200_000_000, 600_000_000];

/// A matmul of few rows on a board, and its plan.
struct Case {
    what: String,
    is_calibrated: bool,
    rows: usize,
    weight_bytes: usize,
    options: PlanOptions,
    plan: Plan,
}

impl Case {
    fn machine(&self) -> &Machine {
        &self.options.profile.machine
    }
}

fn cases(rows: &[usize], mut each: impl FnMut(&Case)) {
    for (board, new) in BOARDS.into_iter().enumerate() {
        for clock in CLOCKS {
            for dtype in [Dtype::Int8, Dtype::Fp16] {
                for (k, n) in MATRICES {
                    let options = new(clock);
                    let weights = WeightPlan::new(dtype, n, k, 3, &options).unwrap();
                    for &rows in rows {
                        let plan = Plan::new(&weights, rows, &options).unwrap();
                        let megahertz = clock / 1_000_000;
                        each(&Case {
                            what: format!("{board}, {megahertz} MHz, {dtype} {rows} x {k} x {n}"),
                            is_calibrated: board == 1,
                            rows,
                            weight_bytes: n * k * dtype.input_bits() / 8,
                            options: options.clone(),
                            plan,
                        });
                    }
                }
            }
        }
    }
}

/// Up to 32 rows are one tile: each of the three devices fetches its weights exactly once.
#[test]
fn weights_are_fetched_once_by_all_devices() {
    cases(&[1, 2, 7, 16, 32], |case| {
        let devices: std::collections::BTreeSet<_> = case
            .plan
            .steps()
            .flat_map(|step| step.jobs)
            .map(|job| job.device)
            .collect();
        assert_eq!(devices.len(), 3, "{}", case.what);
        let fetched = case
            .plan
            .predict(case.machine())
            .work
            .bytes
            .of(DmaEngine::Weight);
        assert_eq!(fetched, case.plan.weights.device_bytes(), "{}", case.what);
    });
}

/// Without the driver's costs, plans move their bytes at 85 % or more of the bandwidth of the
/// timing model, even if kernel groups do not divide evenly.
#[test]
fn the_npu_moves_bytes_at_the_bandwidth() {
    cases(&[2, 4, 8, 16, 32], |case| {
        let machine = case.machine();
        let alone = case.plan.predict(&machine.with_driver(DriverCosts::NONE));
        let per_second = 3 * machine.dram.rate(machine.clock_hz, 3);
        let least = alone.work.total_bytes() as f64 * 1e12 / per_second as f64;
        let share = least / alone.npu_ps as f64;
        assert!((0.85..=1.0).contains(&share), "{}: {share:.3}", case.what);
    });
}

/// With the driver's costs, counting only bytes that any plan must move, and on a board with
/// calibrated tiles: matrices of at least 7 MiB reach 85 % of the bandwidth, or 80 % above 16 rows.
/// Smaller ones cannot, since a job costs as much as 0.6 MB. Default tiles are shallow, which costs
/// sums and kicks.
#[test]
fn large_matrices_reach_the_bandwidth() {
    cases(&[2, 4, 8, 16, 32], |case| {
        if !case.is_calibrated || case.weight_bytes < 7 << 20 {
            return;
        }
        let prediction = case.plan.predict(case.machine());
        assert_eq!(prediction.bound_by(), "memory");
        let share = 1.0 / prediction.over_bound();
        let least = if case.rows <= 16 { 0.85 } else { 0.8 };
        assert!((least..=1.0).contains(&share), "{}: {share:.3}", case.what);
    });
}

/// A limit on the parts makes no call more than 5 % faster than the rule's number, and calls no
/// faster on average.
#[test]
fn fewer_parts_are_not_faster() {
    let (mut sum, mut count) = (0.0, 0.0);
    cases(&[2, 8, 16, 32], |case| {
        let chosen = case.plan.call(&case.options).call_ps as f64;
        for parts in 1..=4 {
            let fewer = PlanOptions {
                parts: Some(parts),
                ..case.options.clone()
            };
            let plan = Plan::new(&case.plan.weights, case.rows, &fewer).unwrap();
            let ratio = chosen / plan.call(&fewer).call_ps as f64;
            assert!(ratio < 1.05, "{}: {ratio:.3} of {parts} parts", case.what);
            sum += ratio.ln();
            count += 1.0;
        }
    });
    assert!(sum / count <= 0.0, "{}", sum / count);
}
