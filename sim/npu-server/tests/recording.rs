// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whatever a client submits, a recorded device answers like a plain one.

#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use npu_capture::{Capture, JobOutcome, Recorder, RecorderOptions, Role};
use npu_model::driver::Arena;
use npu_model::{Model, ModelOptions};
use npu_server::{OpenFile, Service};
use rocket_uapi::{Errno, gem_close, sys};
use test_support::hooked;
use zerocopy::IntoBytes;

fn model() -> Arc<Model> {
    Model::new(ModelOptions {
        hang_timeout: Duration::from_millis(5),
        ..ModelOptions::default()
    })
}

/// An ioctl, of a client in this process.
fn ioctl(file: &dyn OpenFile, request: u32, arg: &mut [u8], arena: &Arena) -> Result<i32, Errno> {
    // SAFETY: an arena has only its own memory, and no test has a reference to what
    // the model's jobs write.
    unsafe { file.ioctl(request, arg, arena) }
}

fn create(file: &dyn OpenFile, size: u32) -> sys::CreateBo {
    let mut bo = sys::CreateBo {
        size,
        ..sys::CreateBo::default()
    };
    ioctl(file, sys::CREATE_BO, bo.as_mut_bytes(), &Arena::new()).unwrap();
    bo
}

/// An address without memory.
const NOWHERE: u64 = 0xdead_0000_0000;

/// Mistakes and oddities of a client's SUBMIT.
#[derive(Clone, Copy, Default)]
struct Odd {
    /// Extra bytes behind each structure.
    job_tail: usize,
    task_tail: usize,
    wild_tasks: bool,
    wild_handles: bool,
    wild_jobs: bool,
    reserved: u64,
}

/// Submits the same job `count` times: a program of zeroes, which starts
/// nothing and is killed.
fn submit(
    file: &dyn OpenFile,
    iova: u32,
    lists: [&[u32]; 2],
    count: u32,
    odd: Odd,
) -> Result<i32, Errno> {
    let arena = Arena::new();
    let task = sys::Task {
        regcmd: iova,
        regcmd_count: 4,
    };
    let mut tasks = Vec::new();
    for _ in 0..2 {
        tasks.extend_from_slice(task.as_bytes());
        tasks.resize(tasks.len() + odd.task_tail, 0xff);
    }
    let at = |wild, bytes: &[u8]| if wild { NOWHERE } else { arena.push(bytes) };
    let job = sys::Job {
        tasks: at(odd.wild_tasks, &tasks),
        in_bo_handles: at(odd.wild_handles, lists[0].as_bytes()),
        out_bo_handles: at(false, lists[1].as_bytes()),
        task_count: 2,
        task_struct_size: (size_of::<sys::Task>() + odd.task_tail) as u32,
        in_bo_handle_count: lists[0].len() as u32,
        out_bo_handle_count: lists[1].len() as u32,
    };
    let mut jobs = Vec::new();
    for _ in 0..count.min(4) {
        jobs.extend_from_slice(job.as_bytes());
        jobs.resize(jobs.len() + odd.job_tail, 0);
    }
    let mut submit = sys::Submit {
        jobs: at(odd.wild_jobs, &jobs),
        job_count: count,
        job_struct_size: (size_of::<sys::Job>() + odd.job_tail) as u32,
        reserved: odd.reserved,
    };
    ioctl(file, sys::SUBMIT, submit.as_mut_bytes(), &arena)
}

/// Makes odd calls. Returns their results.
fn client(file: &dyn OpenFile) -> Vec<Result<i32, Errno>> {
    let (a, b) = (create(file, 4096), create(file, 100));
    let iova = a.dma_address as u32;
    let plain = Odd::default();
    let tails = Odd {
        job_tail: 8,
        task_tail: 24,
        ..plain
    };
    let reserved = Odd {
        reserved: 1,
        ..plain
    };
    let wild = |tasks, handles, jobs| Odd {
        wild_tasks: tasks,
        wild_handles: handles,
        wild_jobs: jobs,
        ..plain
    };
    let both = [&[a.handle][..], &[b.handle]];
    let mut results = vec![
        submit(file, iova, both, 2, plain),
        submit(file, iova, both, 2, tails),
        submit(file, iova, [&[], &[]], 1, plain),
        submit(file, iova, [&[a.handle], &[]], 1, plain),
        submit(file, iova, [&[a.handle], &[a.handle]], 1, plain),
        submit(file, iova, [&[77], &[b.handle]], 1, plain),
        submit(file, iova, both, 1, wild(true, false, false)),
        submit(file, iova, both, 1, wild(false, true, false)),
        submit(file, iova, both, 1, wild(false, false, true)),
        submit(file, iova, both, 0, plain),
        submit(file, iova, both, 1, reserved),
        submit(file, iova, both, u32::MAX, wild(false, false, true)),
    ];
    results.push(gem_close(file, a.handle).map(|()| 0));
    results
}

#[test]
fn a_recorded_device_answers_as_any() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let expected = client(&*Service::open(&*model()).unwrap());

    let device = model();
    let info = device.open_device().info();
    let recorder = Recorder::create(&path, &info, RecorderOptions::default()).unwrap();
    let below = Service::open(&*device).unwrap();
    let file: Box<dyn OpenFile> = Box::new(recorder.of(below));
    assert_eq!(client(&*file), expected);
    file.close(&|| false, &|| ());
    recorder.finish().unwrap();

    let capture = Capture::open(&path).unwrap();
    let killed = JobOutcome::Killed(Errno::CANCELED);
    let outcomes: Vec<_> = capture.jobs().iter().map(|job| job.outcome).collect();
    assert_eq!(
        outcomes,
        [[killed; 6], [JobOutcome::Dropped; 6]].concat()[..10]
    );
    let uses = &capture.jobs()[4].uses;
    assert_eq!((uses.len(), uses[0].role), (1, Role::Reached));
    assert_eq!(capture.jobs()[2].tasks.len(), 2);
}

/// Long enough for another thread to act meanwhile.
const CLOSE: Duration = Duration::from_millis(60);

/// A handle that one thread closes goes to the next object at once. The recorder
/// must not take the new object for the old one.
#[test]
fn handles_go_from_thread_to_thread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("it");
    let model = model();
    let info = model.open_device().info();
    let recorder = Recorder::create(&path, &info, RecorderOptions::default()).unwrap();
    let (gone, is_gone) = mpsc::sync_channel(1);
    // Returns late from GEM_CLOSE, but sends to `gone` at once.
    let slow = hooked(move |inner, request, arg, caller| {
        // SAFETY: what the caller promises.
        let value = unsafe { inner.ioctl(request, arg, caller) };
        if request == sys::GEM_CLOSE {
            // Nobody listens any more if the test has failed already.
            let _ = gone.send(());
            thread::sleep(CLOSE);
        }
        value
    });
    let below = slow(Service::open(&*model).unwrap());
    let file: Box<dyn OpenFile> = Box::new(recorder.of(below));
    let old = create(&*file, 4096);
    let new = thread::scope(|scope| {
        scope.spawn(|| {
            gem_close(&*file, old.handle).unwrap();
        });
        is_gone.recv().unwrap();
        create(&*file, 4096)
    });
    assert_eq!(new.handle, old.handle);
    let iova = new.dma_address as u32;
    submit(&*file, iova, [&[], &[new.handle]], 1, Odd::default()).unwrap();
    let outcomes = recorder.outcomes();
    assert_eq!((outcomes.killed, outcomes.dropped), (1, 0), "{outcomes:?}");
    file.close(&|| false, &|| ());
}
