// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of jobs on the software model, through the same code as on a board.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::time::Duration;

use npu_model::driver::{Bug, Caches, DriverProfile};
use npu_model::event::Event;
use npu_model::{Model, ModelOptions};
use rknpu_regcmd::{Binding, BufferId, ChipProfile, LinkedProgram, MatmulTask, MatmulType};
use rocket_uapi::{
    Arena, Bo, ByteLen, Deadline, Device, DevicePool, Errno, Job, JobBuilder, ProgramBo, Refusal,
    WaitError, sys,
};

const A: BufferId = BufferId(0);
const B: BufferId = BufferId(1);
const C: BufferId = BufferId(2);

fn device() -> Device {
    device_with(ModelOptions::default())
}

fn device_with(options: ModelOptions) -> Device {
    Model::new(options).open_device()
}

/// A job that multiplies matrices of ones into `c`.
fn ones(device: &Device, c: Bo) -> Job {
    let (mut a, mut b) = (bo(device, task().a_bytes()), bo(device, task().b_bytes()));
    a.write(soon()).unwrap().fill(1);
    b.write(soon()).unwrap().fill(1);
    let programs = ProgramBo::new(device, &[link(&a, &b, &c)]).unwrap();
    Job::builder(device)
        .program(&programs)
        .reads_owned(a)
        .reads(&b.freeze())
        .writes(c)
        .build()
        .unwrap()
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// The smallest INT8 matmul: one kernel group, one channel group, four rows.
fn task() -> MatmulTask {
    MatmulTask {
        ty: MatmulType::Int8ToInt32,
        m: 4,
        k: 32,
        n: 32,
        a: A.at(0),
        b: B.at(0),
        c: C.at(0),
    }
}

fn bo(device: &Device, bytes: u64) -> Bo {
    device.alloc(ByteLen::new(bytes as usize).unwrap()).unwrap()
}

fn link(a: &Bo, b: &Bo, c: &Bo) -> LinkedProgram {
    let bind = |id, bo: &Bo| Binding {
        id,
        iova: bo.iova(),
        len: bo.len() as u32,
    };
    task()
        .program(&ChipProfile::RK3588)
        .unwrap()
        .link(&[bind(A, a), bind(B, b), bind(C, c)])
        .unwrap()
}

#[test]
fn a_matmul_of_ones_counts_channels() {
    let device = device();
    let c = bo(&device, task().c_bytes());
    let job = ones(&device, c);
    let pending = device.submit(vec![job]).unwrap().remove(0);
    let done = pending.wait(soon()).unwrap();
    let guard = done.writes[0].read(soon()).unwrap();
    let sums = &guard.as_slice_of::<i32>()[..4 * 32];
    assert!(sums.iter().all(|&sum| sum == 32), "{sums:?}");
}

/// The driver kills a job that exceeds its time limit; PREP_BO returns 0 nevertheless.
#[test]
fn a_killed_job_is_told_from_one_that_ran() {
    let device = device_with(ModelOptions {
        driver: DriverProfile {
            job_limit: Duration::from_nanos(1),
            ..DriverProfile::default()
        },
        hang_timeout: Duration::from_millis(1),
        ..ModelOptions::default()
    });
    let c = bo(&device, task().c_bytes());
    let job = ones(&device, c);
    let pending = device.submit(vec![job]).unwrap().remove(0);
    let WaitError::Killed { job } = pending.wait(soon()).unwrap_err() else {
        panic!("expected a killed job");
    };
    // The buffers are usable again.
    assert_eq!((job.reads.len(), job.writes.len()), (1, 1));
    assert!(job.writes[0].read(soon()).is_ok());
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
        let (mut a, mut b) = (bo(&device, task().a_bytes()), bo(&device, task().b_bytes()));
        a.write(soon()).unwrap().fill(1);
        b.write(soon()).unwrap().fill(1);
        let c = bo(&device, task().c_bytes());
        let programs = ProgramBo::new(&device, &[link(&a, &b, &c)]).unwrap();
        let builder = Job::builder(&device)
            .reads_owned(a)
            .reads_owned(b)
            .writes(c);
        let add = |builder: JobBuilder, _| builder.task(&programs, 0);
        let job = (0..count).fold(builder, add).build().unwrap();
        let pending = device.submit(vec![job]).unwrap().remove(0);
        let done = pending.wait(soon()).unwrap();
        assert_eq!(
            done.writes[0].read(soon()).unwrap().as_slice_of::<i32>()[127],
            32
        );
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
                    let jobs = [(), ()].map(|()| ones(device, bo(device, task().c_bytes())));
                    pending.extend(device.submit(jobs.into()).unwrap());
                }
                for job in pending {
                    let done = job.wait(soon()).unwrap();
                    let guard = done.writes[0].read(soon()).unwrap();
                    assert_eq!(guard.as_slice_of::<i32>()[127], 32);
                }
            });
        }
    });
}

#[test]
fn a_program_outside_the_buffers_of_the_job_is_refused() {
    let device = device();
    let (a, b, c) = (
        bo(&device, task().a_bytes()),
        bo(&device, task().b_bytes()),
        bo(&device, task().c_bytes()),
    );
    let programs = ProgramBo::new(&device, &[link(&a, &b, &c)]).unwrap();
    let refused = Job::builder(&device)
        .program(&programs)
        .reads_owned(c)
        .reads(&b.freeze())
        .writes(a)
        .build()
        .unwrap_err();
    assert!(
        matches!(refused.refusal, Refusal::WriteOutside(_)),
        "{refused}"
    );
    assert_eq!((refused.reads.len(), refused.writes.len()), (1, 1));
}

/// A model of the kernel with all its bugs. It crashes when a client triggers one.
fn frail() -> std::sync::Arc<Model> {
    Model::new(ModelOptions {
        bugs: Bug::ALL.into(),
        driver: DriverProfile {
            // Longer than closing a file takes on a slow host, so a client that does not
            // wait triggers the bug.
            free_delay: Duration::from_millis(200),
            ..DriverProfile::LINUX_6_18
        },
        ..ModelOptions::default()
    })
}

fn assert_healthy(model: &Model, what: &str) {
    let events = model.take_events();
    let bug = |event: &&Event| matches!(event, Event::KernelBug { .. });
    let bugs: Vec<_> = events.iter().filter(bug).collect();
    assert!(bugs.is_empty(), "{what}: {bugs:?}");
    assert!(!model.is_oopsed(), "{what}");
}

/// However a client releases its objects, the file closes last and late enough.
#[test]
#[cfg_attr(miri, ignore = "too many jobs for an interpreter")]
fn every_way_to_close_spares_the_kernel() {
    let model = frail();
    let submit = |device: &Device| {
        let c = bo(device, task().c_bytes());
        let job = ones(device, c);
        device.submit(vec![job]).unwrap().remove(0)
    };

    let device = model.open_device();
    let done = submit(&device).wait(soon()).unwrap();
    drop(device);
    drop(done);
    assert_healthy(&model, "the buffers go last");

    let device = model.open_device();
    let done = submit(&device).wait(soon()).unwrap();
    drop(done);
    drop(device);
    assert_healthy(&model, "the device goes last");

    let device = model.open_device();
    let pending = submit(&device);
    drop(device);
    drop(pending);
    assert_healthy(&model, "a job that nobody waits for");

    let device = model.open_device();
    let done = submit(&device).wait(soon()).unwrap();
    let guard = done.writes[0].read(soon()).unwrap();
    drop(device);
    assert_eq!(guard[0], 32);
    drop(done);
    assert_healthy(&model, "a guard is open");
    let device = model.open_device();
    assert!(device.alloc(ByteLen::new(4096).unwrap()).is_ok());
}

#[test]
#[cfg_attr(miri, ignore = "needs memfd")]
fn exported_buffers_spare_the_kernel() {
    let model = frail();
    let device = model.open_device();
    let c = bo(&device, task().c_bytes());
    let job = ones(&device, c);
    let pending = device.submit(vec![job]).unwrap().remove(0);
    let mut done = pending.wait(soon()).unwrap();
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
    let mut c = bo(&device, task().c_bytes());
    for _ in 0..2 {
        // The job must overwrite these bytes of the CPU; they must not reach memory later.
        c.write(soon()).unwrap().fill(0xa5);
        let pending = device.submit(vec![ones(&device, c)]).unwrap().remove(0);
        let mut done = pending.wait(soon()).unwrap();
        c = done.writes.remove(0);
        let guard = c.read(soon()).unwrap();
        let sums = &guard.as_slice_of::<i32>()[..4 * 32];
        assert!(sums.iter().all(|&sum| sum == 32), "{sums:?}");
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
