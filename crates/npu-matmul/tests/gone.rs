// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that disappears: the current and all later calls return a typed error at once, and
//! nothing leaks.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;
#[path = "common/faults.rs"]
mod faults;
#[path = "common/problem.rs"]
mod problem;

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use faults::{Faults, faulty_engine};
use npu_matmul::{Engine, Error, JobFailure};
use problem::Problem;
use proptest::prelude::*;
use rocket_uapi::Error as DeviceError;

/// A way to use a device.
type Use = fn(&Engine, &Problem) -> Result<(), Error>;

/// Uses of a device, in order.
const USES: [Use; 4] = [
    |engine, problem| problem.run(engine),
    |engine, problem| problem.run_quantised(engine).map(drop),
    |engine, problem| problem.run_at_once(engine),
    |engine, problem| problem.run(engine),
];

/// Loads weights and uses them. Calls fail only because the device is gone, and then all later
/// calls fail.
fn load_and_use(engine: &Engine, faults: &Faults) {
    let loaded = typed(faults, Problem::load(engine));
    let Some(problem) = loaded else {
        return;
    };
    for of in USES {
        let failed_before = faults.is_gone();
        let done = typed(faults, of(engine, &problem));
        assert!(
            done.is_none() || !failed_before,
            "a product of a device that is gone"
        );
    }
}

/// Returns the result, or checks the error.
fn typed<T>(faults: &Faults, result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(faults.is_gone(), "{error}");
            let gone = matches!(
                &error,
                Error::Device {
                    source: DeviceError::DeviceGone { .. },
                    ..
                } | Error::Job {
                    source: JobFailure::Device(DeviceError::DeviceGone { .. }),
                    ..
                }
            );
            assert!(gone, "{error:?}");
            None
        }
    }
}

/// Number of calls to a device that does not disappear.
fn calls() -> usize {
    static CALLS: OnceLock<usize> = OnceLock::new();
    *CALLS.get_or_init(|| {
        let (engine, faults) = faulty_engine(3);
        load_and_use(&engine, &faults);
        drop(engine);
        faults.calls.load(Ordering::Relaxed)
    })
}

proptest! {
    #![proptest_config(test_support::cases(32))]

    #[test]
    fn a_device_that_disappears_is_an_error_and_no_leak(at in 0.0..1.0_f64) {
        let (engine, faults) = faulty_engine(3);
        let at = 1 + (at * calls() as f64) as usize;
        faults.until_gone.store(at, Ordering::Relaxed);
        load_and_use(&engine, &faults);
        drop(engine);
        prop_assert_eq!(faults.live.load(Ordering::Relaxed), 0);
    }
}
