// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices without free addresses: calls return a typed error, nothing leaks, and the next matmul
//! is right once addresses are free.

use std::sync::atomic::Ordering;

use npu_matmul::{Engine, Error, Weights};
use proptest::prelude::*;
use rocket_uapi::{Bo, ByteLen, Device, Error as DeviceError, PAGE_BYTES};

use crate::common::faults::{faulty_pool, small_jobs};
use crate::common::problem::Problem;

/// Allocates all of a file's addresses except those of `pages` pages, as unused buffers.
fn fill(device: &Device, pages: usize) -> Vec<Bo> {
    let alloc = |bytes| device.alloc(ByteLen::new(bytes).unwrap());
    let hole = (pages > 0).then(|| alloc(pages * PAGE_BYTES).unwrap());
    let mut all = Vec::new();
    let mut bytes = 1 << 30;
    while bytes >= PAGE_BYTES {
        match alloc(bytes) {
            Ok(bo) => all.push(bo),
            Err(error) => {
                assert!(matches!(error, DeviceError::OutOfMemory { .. }), "{error}");
                bytes /= 2;
            }
        }
    }
    drop(hole);
    all
}

/// Whether there was enough room. If not, checks that the error says so.
fn had_room<T>(result: Result<T, Error>) -> bool {
    let Err(error) = result else {
        return true;
    };
    let is_expected = matches!(
        &error,
        Error::Device {
            source: DeviceError::OutOfMemory { .. },
            ..
        }
    );
    assert!(is_expected, "{error:?}");
    false
}

#[test]
fn weights_and_matmuls_without_addresses_are_errors() {
    let (pool, faults) = faulty_pool(2);
    let devices = pool.devices().to_vec();
    let engine = Engine::with_options(pool, small_jobs()).unwrap();
    let problem = Problem::new(&engine);
    let loaded = faults.live.load(Ordering::Relaxed);
    let full: Vec<_> = devices.iter().map(|device| fill(device, 0)).collect();
    let filled = faults.live.load(Ordering::Relaxed);
    // Small weights share existing buffer objects; large weights find no room.
    assert!(had_room(Problem::load(&engine)));
    let large = Weights::i8(4000, 500, &[1; 4000 * 500]);
    assert!(!had_room(engine.load(large)));
    for of in Problem::USES {
        assert!(!had_room(of(&problem, &engine)));
    }
    // Failed calls leave no buffer objects, and may have freed idle ones.
    assert!(faults.live.load(Ordering::Relaxed) <= filled);
    drop(full);
    assert!(faults.live.load(Ordering::Relaxed) <= loaded);
    problem.run_all(&engine);
    drop((problem, engine, devices));
    assert_eq!(faults.live.load(Ordering::Relaxed), 0);
}

proptest! {
    #![proptest_config(test_support::cases(12))]

    /// Some calls have room for a part only, so they fail midway.
    #[test]
    fn whatever_finds_no_address_is_right_once_there_are_some(
        order in prop::collection::vec((0..5_usize, 0..9_usize), 1..6),
    ) {
        let (pool, faults) = faulty_pool(2);
        let devices = pool.devices().to_vec();
        let engine = Engine::with_options(pool, small_jobs()).unwrap();
        let problem = Problem::new(&engine);
        problem.run_all(&engine);
        for (which, pages) in order {
            let full: Vec<_> = devices.iter().map(|device| fill(device, pages)).collect();
            // Whether there is room depends on the buffers that the engine keeps.
            match Problem::USES.get(which) {
                Some(of) => had_room(of(&problem, &engine)),
                None => had_room(Problem::load(&engine)),
            };
            drop(full);
            problem.run_all(&engine);
        }
        drop((problem, engine, devices));
        prop_assert_eq!(faults.live.load(Ordering::Relaxed), 0);
    }
}
