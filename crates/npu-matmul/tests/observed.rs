// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of an engine, and its reports to an observer.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{engine, multiply, random_f16, random_i8};
use npu_matmul::{Activity, Done, Observer, Plan, Weights};

/// Keeps all reports.
#[derive(Debug, Default)]
struct Notes {
    done: Mutex<Vec<Done>>,
    plans: Mutex<Vec<(u64, usize)>>,
}

fn random_f32(seed: u64, len: usize) -> Vec<f32> {
    random_f16(seed, len).iter().map(|x| x.to_f32()).collect()
}

/// Any number except the default.
const TOKEN: u64 = 7;

impl Observer for Notes {
    fn token(&self) -> u64 {
        TOKEN
    }

    fn planned(&self, token: u64, plan: &Plan) {
        self.plans.lock().unwrap().push((token, plan.m));
    }

    fn done(&self, done: &Done) {
        self.done.lock().unwrap().push(*done);
    }
}

#[test]
fn an_observer_sees_what_the_counters_count() {
    let notes = Arc::new(Notes::default());
    let engine = engine().observed_by(Arc::clone(&notes) as Arc<dyn Observer>);
    let (m, n, k) = (37, 96, 300);
    let weights = engine
        .load(Weights::i8(n, k, &random_i8(1, n * k)))
        .unwrap();
    let floats = random_f32(2, n * k);
    let quantised = engine.load(Weights::w8a8(n, k, &floats)).unwrap();
    let loaded = engine.counters();
    let mut integers = vec![0; m * n];
    multiply(&engine, &weights, m, &random_i8(3, m * k), &mut integers).unwrap();
    let mut results = vec![0.0; m * n];
    multiply(&engine, &quantised, m, &random_f32(4, m * k), &mut results).unwrap();
    let counters = engine.counters();
    let devices = notes.done.lock().unwrap();
    assert!(devices.iter().all(|done| done.token == TOKEN));
    assert!(devices.iter().all(|done| done.started <= done.ended));
    let sum = |of: fn(&Activity) -> usize| -> u64 {
        let all = devices.iter().map(|done| of(&done.activity) as u64);
        all.sum()
    };
    let count = |is: fn(&Activity) -> bool| sum_of(&devices, is);
    assert_eq!(count(|a| matches!(a, Activity::Job { .. })), counters.jobs);
    assert_eq!(count(|a| matches!(a, Activity::Wait)), counters.jobs);
    let submits = count(|a| matches!(a, Activity::Submit { .. }));
    assert_eq!(submits, counters.submits);
    let jobs = sum(|a| match a {
        Activity::Submit { jobs } => *jobs,
        _ => 0,
    });
    assert_eq!(jobs, counters.jobs);
    let tasks = sum(|a| match a {
        Activity::Job { tasks } => *tasks,
        _ => 0,
    });
    assert_eq!(tasks, counters.tasks);
    let unpacked = sum(|a| match a {
        Activity::Unpack { bytes } => *bytes,
        _ => 0,
    });
    assert_eq!(unpacked, counters.bytes_from_device);
    let packed = sum(|a| match a {
        Activity::Pack { bytes } => *bytes,
        _ => 0,
    });
    // The rest are programs.
    assert!(packed > 0 && packed < counters.bytes_to_device - loaded.bytes_to_device);
    let quantised = sum(|a| match a {
        Activity::Quantise { elements } => *elements,
        _ => 0,
    });
    assert_eq!(quantised, (m * k) as u64);
    assert_eq!(*notes.plans.lock().unwrap(), [(TOKEN, m); 2]);
}

fn sum_of(done: &[Done], is: fn(&Activity) -> bool) -> u64 {
    done.iter().filter(|done| is(&done.activity)).count() as u64
}

#[test]
fn times_are_where_the_work_was() {
    let engine = engine();
    assert_eq!(engine.times(), npu_matmul::Times::default());
    let (m, n, k) = (64, 64, 256);
    let weights = engine
        .load(Weights::f16(n, k, &random_f16(1, n * k)))
        .unwrap();
    let loaded = engine.times();
    assert!(loaded.pack_weights > Duration::ZERO);
    assert_eq!(loaded.pack + loaded.unpack + loaded.wait, Duration::ZERO);
    let mut out = vec![0.0; m * n];
    let a = random_f16(2, m * k);
    multiply(&engine, &weights, m, &a, &mut out).unwrap();
    let ran = engine.times();
    assert_eq!(ran.pack_weights, loaded.pack_weights);
    for time in [ran.pack, ran.unpack, ran.in_flight] {
        assert!(time > Duration::ZERO, "{ran:?}");
    }
    // Nothing is running now.
    assert_eq!(engine.times(), ran);
}
