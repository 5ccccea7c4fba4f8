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
use rocket_uapi::{Errno, sys};
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

fn close(file: &dyn OpenFile, handle: u32) -> Result<i32, Errno> {
    let mut bo = sys::GemClose { handle, pad: 0 };
    ioctl(file, sys::GEM_CLOSE, bo.as_mut_bytes(), &Arena::new())
}

/// An address without memory.
const NOWHERE: u64 = 0xdead_0000_0000;

/// What a SUBMIT has besides the address of its jobs, and its oddities.
#[derive(Clone, Copy, Default)]
struct Submission {
    count: u32,
    reserved: u64,
    /// An address to name instead of that of the jobs.
    jobs: Option<u64>,
    /// Extra bytes behind each job and each task.
    job_tail: usize,
    task_tail: usize,
}

/// A SUBMIT of so many jobs.
fn jobs(count: u32) -> Submission {
    Submission {
        count,
        ..Submission::default()
    }
}

/// Submits the same job as often as `head` says: a program of zeroes, which starts
/// nothing and is killed. `spoil` may put a mistake into the job.
fn submit(
    file: &dyn OpenFile,
    (iova, lists): (u64, [&[u32]; 2]),
    head: Submission,
    spoil: fn(&mut sys::Job),
) -> Result<i32, Errno> {
    let arena = Arena::new();
    let task = sys::Task {
        regcmd: iova as u32,
        regcmd_count: 4,
    };
    let task = [task.as_bytes(), &[0xff].repeat(head.task_tail)].concat();
    let mut job = sys::Job {
        tasks: arena.push(&task.repeat(2)),
        in_bo_handles: arena.push(lists[0].as_bytes()),
        out_bo_handles: arena.push(lists[1].as_bytes()),
        task_count: 2,
        task_struct_size: task.len() as u32,
        in_bo_handle_count: lists[0].len() as u32,
        out_bo_handle_count: lists[1].len() as u32,
    };
    spoil(&mut job);
    let job = [job.as_bytes(), &[0].repeat(head.job_tail)].concat();
    let jobs = arena.push(&job.repeat(head.count.min(4) as usize));
    let mut submit = sys::Submit {
        jobs: head.jobs.unwrap_or(jobs),
        job_count: head.count,
        job_struct_size: job.len() as u32,
        reserved: head.reserved,
    };
    ioctl(file, sys::SUBMIT, submit.as_mut_bytes(), &arena)
}

/// Makes odd calls. Returns their results.
fn client(file: &dyn OpenFile) -> Vec<Result<i32, Errno>> {
    let (a, b) = (create(file, 4096), create(file, 100));
    let (one, both) = (jobs(1), [&[a.handle][..], &[b.handle]]);
    let tails = Submission {
        job_tail: 8,
        task_tail: 24,
        ..jobs(2)
    };
    let nowhere = Submission {
        jobs: Some(NOWHERE),
        ..one
    };
    let absurd = Submission {
        count: u32::MAX,
        ..nowhere
    };
    let reserved = Submission { reserved: 1, ..one };
    let plain: fn(&mut sys::Job) = |_| ();
    let call = |lists, head, spoil| submit(file, (a.dma_address, lists), head, spoil);
    vec![
        call(both, jobs(2), plain),
        call(both, tails, plain),
        call([&[], &[]], one, plain),
        call([&[a.handle], &[]], one, plain),
        call([&[a.handle], &[a.handle]], one, plain),
        call([&[77], &[b.handle]], one, plain),
        call(both, one, |job| job.tasks = NOWHERE),
        call(both, one, |job| job.in_bo_handles = NOWHERE),
        call(both, nowhere, plain),
        call(both, jobs(0), plain),
        call(both, reserved, plain),
        call(both, absurd, plain),
        close(file, a.handle),
    ]
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
            close(&*file, old.handle).unwrap();
        });
        is_gone.recv().unwrap();
        create(&*file, 4096)
    });
    assert_eq!(new.handle, old.handle);
    let place = (new.dma_address, [&[][..], &[new.handle]]);
    submit(&*file, place, jobs(1), |_| ()).unwrap();
    let outcomes = recorder.outcomes();
    assert_eq!((outcomes.killed, outcomes.dropped), (1, 0), "{outcomes:?}");
    file.close(&|| false, &|| ());
}
