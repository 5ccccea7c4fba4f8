// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of jobs on the software model, through the same code as on a board.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod common;

use std::time::Duration;

use common::on_model::{assert_healthy, frail, impatient};
use common::{C_BYTES, alloc, job, job_into, soon, submit, writing};
use npu_model::driver::Caches;
use npu_model::event::Event;
use npu_model::{Model, ModelOptions};
use rocket_uapi::{Arena, Bo, Device, DevicePool, Errno, JobBuilder, PendingJob, WaitError, sys};

fn device() -> Device {
    Model::new(ModelOptions::default()).open_device()
}

fn submit_one(device: &Device) -> PendingJob {
    submit(job(device), device)
}

/// Checks the product of matrices of ones.
fn assert_counts_channels(c: &Bo) {
    let guard = c.read(soon()).unwrap();
    assert_eq!(guard.as_slice_of::<i32>()[..C_BYTES / 4], [32; C_BYTES / 4]);
}

#[test]
fn a_matmul_of_ones_counts_channels() {
    let done = submit_one(&device()).wait(soon()).unwrap();
    assert_counts_channels(&done.writes[0]);
}

/// The driver kills a job that exceeds its time limit; PREP_BO returns 0 nevertheless.
#[test]
fn a_killed_job_is_told_from_one_that_ran() {
    let end = submit_one(&impatient()).wait(soon());
    let WaitError::Killed(failed) = end.unwrap_err() else {
        panic!("expected a killed job");
    };
    // The driver's limit, in modelled time.
    assert_eq!(failed.core_time, Duration::from_nanos(1));
    // The buffers are usable again.
    let (reads, writes) = failed.job.into_bos();
    assert_eq!((reads.len(), writes.len()), (1, 1));
    assert!(writes[0].read(soon()).is_ok());
}

/// Each job has one more task, and its proof holds on the model.
#[test]
#[cfg_attr(miri, ignore = "too many tasks for an interpreter")]
fn each_job_ends_with_the_witness() {
    let model = Model::new(ModelOptions {
        timeline: true,
        ..ModelOptions::default()
    });
    let device = model.open_device();
    for count in [1, 8] {
        let c = alloc(&device, C_BYTES).unwrap();
        let (builder, programs) = writing(&device, c).unwrap();
        let add = |builder: JobBuilder, _| builder.task(&programs, 0);
        let job = (1..count).fold(builder, add).build().unwrap();
        let pending = submit(job, &device);
        assert_counts_channels(&pending.wait(soon()).unwrap().writes[0]);
    }
    let timeline = model.timeline().unwrap();
    let tasks: Vec<_> = timeline.jobs().map(|(job, _)| job.tasks.len()).collect();
    assert_eq!(tasks, [2, 9]);
}

/// Submits more jobs than cores, from several files and threads at once.
#[test]
#[cfg_attr(miri, ignore = "too many jobs for an interpreter")]
fn files_and_threads_do_not_disturb_each_other() {
    let pool = DevicePool::open(&device(), 3).unwrap();
    std::thread::scope(|scope| {
        for device in pool.devices() {
            scope.spawn(move || {
                let mut pending = Vec::new();
                for _ in 0..4 {
                    let jobs = [job(device), job(device)];
                    pending.extend(device.submit(jobs.into()).unwrap());
                }
                for job in pending {
                    assert_counts_channels(&job.wait(soon()).unwrap().writes[0]);
                }
            });
        }
    });
}

/// However a client releases its objects, the file closes last and late enough.
#[test]
#[cfg_attr(miri, ignore = "too many jobs for an interpreter")]
fn every_way_to_close_spares_the_kernel() {
    let model = frail();
    let device = model.open_device();
    let done = submit_one(&device).wait(soon()).unwrap();
    drop(device);
    drop(done);
    assert_healthy(&model, "the buffers go last");

    let device = model.open_device();
    let done = submit_one(&device).wait(soon()).unwrap();
    drop(done);
    drop(device);
    assert_healthy(&model, "the device goes last");

    let device = model.open_device();
    let pending = submit_one(&device);
    drop(device);
    drop(pending);
    assert_healthy(&model, "a job that nobody waits for");

    let device = model.open_device();
    let done = submit_one(&device).wait(soon()).unwrap();
    let guard = done.writes[0].read(soon()).unwrap();
    drop(device);
    assert_eq!(guard[0], 32);
    drop(done);
    assert_healthy(&model, "a guard is open");
    let device = model.open_device();
    assert!(alloc(&device, 4096).is_ok());
}

#[test]
#[cfg_attr(miri, ignore = "needs memfd")]
fn exported_buffers_spare_the_kernel() {
    let model = frail();
    let device = model.open_device();
    let mut done = submit_one(&device).wait(soon()).unwrap();
    let shared = done.writes.remove(0).export().unwrap();
    drop(done);
    drop(device);
    assert_healthy(&model, "the dma-buf keeps its file");
    drop(shared);
    assert_healthy(&model, "handle, dma-buf, file");
}

/// PREP_BO and FINI_BO are called where a board needs them, so no read is stale.
#[test]
#[cfg_attr(miri, ignore = "too many jobs for an interpreter")]
fn manual_caches_change_nothing() {
    let model = Model::new(ModelOptions {
        caches: Caches::Manual,
        ..ModelOptions::default()
    });
    let device = model.open_device();
    let mut c = alloc(&device, C_BYTES).unwrap();
    for _ in 0..2 {
        // The job must overwrite these bytes of the CPU; they must not reach memory later.
        c.write(soon()).unwrap().fill(0xa5);
        let pending = submit(job_into(&device, c), &device);
        c = pending.wait(soon()).unwrap().writes.remove(0);
        assert_counts_channels(&c);
    }
    let events = model.take_events();
    let missed = |event: &&Event| matches!(event, Event::MissedCall { .. });
    let missed: Vec<_> = events.iter().filter(missed).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn a_structure_of_another_size_is_refused() {
    let file = Model::new(ModelOptions::default()).open_file();
    let arena = Arena::new();
    let mut close = sys::GemClose { handle: 1, pad: 0 };
    // SAFETY: the argument holds no address, and the request is not SUBMIT.
    let result = unsafe { rocket_uapi::ioctl(&file, sys::CREATE_BO, &mut close, &arena) };
    assert_eq!(result, Err(Errno::INVAL));
}
