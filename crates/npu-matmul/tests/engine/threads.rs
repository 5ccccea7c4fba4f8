// SPDX-License-Identifier: MIT OR Apache-2.0
//! Engines with separate threads.

use std::collections::HashSet;
use std::sync::Mutex;
use std::thread;

use npu_matmul::quantise::Quantisation;
use npu_matmul::{Dtype, Engine, Threads, Weights};

use crate::common::{DEVICES, Shape, check, engine, multiply, pool};

const M: usize = 20;
const N: usize = 100;
const K: usize = 96;

fn with(threads: &str) -> Engine {
    let engine = Engine::open(pool(DEVICES)).unwrap();
    engine
        .with_threads(threads.parse::<Threads>().unwrap())
        .unwrap()
}

/// The result of a quantised matmul, and the names of the threads that filled its weights.
fn quantised(engine: &Engine) -> (Vec<f32>, HashSet<String>) {
    let names = Mutex::new(HashSet::new());
    let fill = |channel: usize, row: &mut [f32]| {
        let name = thread::current().name().unwrap_or("none").to_owned();
        names.lock().unwrap().insert(name);
        for (k, out) in row.iter_mut().enumerate() {
            *out = ((channel * 7 + k * 3) % 23) as f32 - 11.0;
        }
    };
    let weights = engine
        .load(Weights::quantised_rows(N, K, Quantisation::W8A8, fill))
        .unwrap();
    let mut a: Vec<f32> = (0..M * K).map(|i| (i % 17) as f32 - 8.0).collect();
    a.iter_mut().skip(5).step_by(K).for_each(|x| *x = 90.0);
    let mut c = vec![0.0; M * N];
    multiply(engine, &weights, M, &a, &mut c).unwrap();
    (c, names.into_inner().unwrap())
}

#[test]
fn results_do_not_depend_on_threads() {
    let (floats, _) = quantised(&engine());
    for threads in ["1", "2", "3,free", "2,pin"] {
        let engine = with(threads);
        check(&engine, Dtype::Int8, Shape::new(M, N, K), 1);
        assert!(quantised(&engine).0 == floats, "{threads}");
    }
}

#[test]
fn an_engine_uses_its_own_threads() {
    let (_, names) = quantised(&with("1"));
    assert_eq!(names, HashSet::from(["npu-cpu-0".to_owned()]));
    // Also from within a pool of the caller.
    let callers = rayon::ThreadPoolBuilder::new()
        .num_threads(2)
        .build()
        .unwrap();
    let (_, names) = callers.install(|| quantised(&with("1")));
    assert_eq!(names, HashSet::from(["npu-cpu-0".to_owned()]));
    let (_, names) = callers.install(|| quantised(&engine()));
    assert!(names.iter().all(|name| !name.starts_with("npu-cpu")));
}
