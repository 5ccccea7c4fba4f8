// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of an engine, and its reports to an observer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use npu_matmul::quantise::Quantisation;
use npu_matmul::{Activity, Counters, Done, Observer, Plan, WeightFormat};

use crate::common::matmul::Matmul;
use crate::common::{Shape, engine};

/// Keeps all reports.
#[derive(Debug, Default)]
struct Notes {
    done: Mutex<Vec<Done>>,
    plans: Mutex<Vec<(u64, usize)>>,
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
    let shape = Shape::new(37, 96, 300);
    let formats = [
        WeightFormat::Int8,
        WeightFormat::Quantised(Quantisation::W8A8),
    ];
    let matmuls = formats.map(|format| Matmul::new(&engine, format, shape, 1).unwrap());
    let loaded = engine.counters();
    for matmul in &matmuls {
        matmul.run(&engine).unwrap();
    }
    let counters = engine.counters();
    let devices = notes.done.lock().unwrap();
    assert!(devices.iter().all(|done| done.token == TOKEN));
    assert!(devices.iter().all(|done| done.started <= done.ended));
    let (mut seen, mut waits, mut submitted) = (Counters::default(), 0, 0);
    let (mut packed, mut quantised) = (0, 0);
    for done in &*devices {
        match done.activity {
            Activity::Quantise { elements } => quantised += elements,
            Activity::Pack { bytes } => packed += bytes as u64,
            Activity::Submit { jobs } => {
                seen.submits += 1;
                submitted += jobs as u64;
            }
            Activity::Job { tasks } => {
                seen.jobs += 1;
                seen.tasks += tasks as u64;
            }
            Activity::Wait => waits += 1,
            Activity::Unpack { bytes } => seen.bytes_from_device += bytes as u64,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen.jobs, counters.jobs);
    assert_eq!((waits, submitted), (seen.jobs, seen.jobs));
    assert_eq!(seen.submits, counters.submits);
    assert_eq!(seen.tasks, counters.tasks);
    assert_eq!(seen.bytes_from_device, counters.bytes_from_device);
    // The rest are programs.
    assert!(packed > 0 && packed < counters.bytes_to_device - loaded.bytes_to_device);
    assert_eq!(quantised, shape.m * shape.k);
    assert_eq!(*notes.plans.lock().unwrap(), [(TOKEN, shape.m); 2]);
}

#[test]
fn times_are_where_the_work_was() {
    let engine = engine();
    assert_eq!(engine.times(), npu_matmul::Times::default());
    let matmul = Matmul::new(&engine, WeightFormat::Fp16, Shape::new(64, 64, 256), 1).unwrap();
    let loaded = engine.times();
    assert!(loaded.pack_weights > Duration::ZERO);
    assert_eq!(loaded.pack + loaded.unpack + loaded.wait, Duration::ZERO);
    matmul.run(&engine).unwrap();
    let ran = engine.times();
    assert_eq!(ran.pack_weights, loaded.pack_weights);
    for time in [ran.pack, ran.unpack, ran.in_flight] {
        assert!(time > Duration::ZERO, "{ran:?}");
    }
    // Nothing is running now.
    assert_eq!(engine.times(), ran);
}
