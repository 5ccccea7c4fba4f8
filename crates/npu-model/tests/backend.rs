// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model through the seam that clients use, and through its raw door.

#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use npu_model::event::Event;
use npu_model::{Model, ModelOptions};
use rocket_uapi::{
    Backend, ByteLen, Call, Deadline, DeviceInfo, Errno, Error, RawBo, RawJob, RawTask,
};

fn model() -> Arc<Model> {
    Model::new(ModelOptions {
        hang_timeout: Duration::from_millis(1),
        ..ModelOptions::default()
    })
}

fn create(backend: &dyn Backend, len: usize) -> RawBo {
    backend.create_bo(ByteLen::new(len).unwrap()).unwrap()
}

#[test]
fn the_model_says_what_it_is() {
    let expected = DeviceInfo {
        name: "software model".into(),
        driver: "rocket".into(),
        version: (0, 0, 0),
        description: "rocket DRM".into(),
        is_model: true,
        cores: 3,
    };
    assert_eq!(model().open().info(), expected);
}

#[test]
fn buffer_objects_come_and_go() {
    let model = model();
    let backend = model.open();
    let bo = create(&*backend, 5000);
    assert_eq!((bo.handle.get(), bo.iova.0, bo.memory.len()), (1, 0, 8192));
    assert_eq!(backend.prep_bo(bo.handle, Deadline::NOW), Ok(()));
    assert_eq!(backend.fini_bo(bo.handle), Ok(()));
    drop(bo.memory);
    assert_eq!(backend.close_bo(bo.handle), Ok(()));
    let refused = |call, errno| Error::Refused {
        call,
        handle: Some(bo.handle),
        errno,
    };
    assert_eq!(
        backend.close_bo(bo.handle),
        Err(refused(Call::GemClose, Errno::INVAL))
    );
    assert_eq!(
        backend.prep_bo(bo.handle, Deadline::NOW),
        Err(refused(Call::PrepBo, Errno::NOENT))
    );
    let other = backend.reopen().unwrap();
    assert_eq!(create(&*other, 1).iova.0, 0, "its own addresses");
}

#[test]
#[cfg_attr(miri, ignore = "4 GiB of heap pages")]
fn four_gib_are_enough_for_nobody() {
    let model = model();
    let backend = model.open();
    let mut bos: Vec<_> = (0..2)
        .map(|_| create(&*backend, ByteLen::MAX.get()))
        .collect();
    bos.extend((0..2).map(|_| create(&*backend, 4096)));
    let len = ByteLen::new(1).unwrap();
    let full = backend.create_bo(len).unwrap_err();
    assert_eq!(full, Error::OutOfMemory { len });
}

/// Zeroed memory is no program: no command in it enables anything.
fn run_nothing(backend: &dyn Backend) -> (RawBo, RawBo) {
    let (program, out) = (create(backend, 4096), create(backend, 4096));
    let job = RawJob {
        tasks: &[RawTask {
            regcmd: program.iova,
            words: 8,
        }],
        reads: &[program.handle],
        writes: &[out.handle],
    };
    // SAFETY: no slice of these buffers exists while the job runs.
    unsafe { backend.submit(&[job]) }.unwrap();
    (program, out)
}

#[test]
fn a_killed_job_is_known_as_such() {
    let model = model();
    let backend = model.open();
    let since = Instant::now();
    let (_program, out) = run_nothing(&*backend);
    assert_eq!(backend.was_accepted(out.handle), Ok(true));
    assert_eq!(backend.prep_bo(out.handle, Deadline::FOREVER), Ok(()));
    assert_eq!(backend.was_killed(out.handle, since), Some(true));
    let events = model.take_events();
    assert!(
        events.iter().any(|e| matches!(e, Event::JobKilled { .. })),
        "{events:?}"
    );
}

#[test]
fn a_dropped_job_was_not_accepted() {
    let model = model();
    let backend = model.open();
    let out = create(&*backend, 4096);
    let job = RawJob {
        tasks: &[],
        reads: &[],
        writes: &[out.handle],
    };
    // SAFETY: no slice of these buffers exists while the job runs.
    unsafe { backend.submit(&[job]) }.unwrap();
    assert_eq!(backend.was_accepted(out.handle), Ok(false));
    assert_eq!(backend.was_killed(out.handle, Instant::now()), Some(false));
    assert!(matches!(model.events()[..], [Event::JobDropped { .. }]));
}

#[test]
fn strict_does_not_wait_for_a_hang() {
    let model = Model::new(ModelOptions {
        level: npu_model::Level::Strict,
        hang_timeout: Duration::from_secs(3600),
        ..ModelOptions::default()
    });
    let backend = model.open();
    let (_program, out) = run_nothing(&*backend);
    assert_eq!(backend.prep_bo(out.handle, Deadline::FOREVER), Ok(()));
    assert_eq!(backend.was_killed(out.handle, Instant::now()), Some(true));
}

#[test]
fn a_busy_object_times_out() {
    let model = Model::new(ModelOptions {
        hang_timeout: Duration::from_secs(3600),
        ..ModelOptions::default()
    });
    let backend = model.open();
    let (_program, out) = run_nothing(&*backend);
    let handle = out.handle;
    for until in [Deadline::NOW, Deadline::after(Duration::from_millis(2))] {
        let busy = backend.prep_bo(handle, until);
        assert_eq!(busy, Err(Error::TimedOut { handle }));
    }
}

#[test]
#[cfg(not(miri))]
fn an_exported_object_is_a_file() {
    let model = model();
    let backend = model.open();
    let bo = create(&*backend, 5000);
    let file = std::fs::File::from(backend.export_bo(bo.handle).unwrap());
    assert_eq!(file.metadata().unwrap().len(), 8192);
    let unknown = rocket_uapi::Handle::new(9).unwrap();
    assert!(backend.export_bo(unknown).is_err());
}

#[test]
#[cfg(not(miri))]
fn a_wild_pointer_at_the_raw_door_is_efault() {
    use rocket_uapi::sys::SUBMIT;

    let model = model();
    let backend = model.open();
    let raw = backend.raw().unwrap();
    let submit = |pointer: u64| {
        let mut arg = [0; 24];
        arg[0..8].copy_from_slice(&pointer.to_le_bytes());
        arg[8] = 1;
        arg[12] = 40;
        // SAFETY: `pointer` is either invalid or a live array of one job
        // structure whose own pointers are null.
        unsafe { raw.ioctl(SUBMIT, Some(&mut arg)) }
    };
    for wild in [0, 4096, u64::MAX - 7] {
        assert_eq!(submit(wild), Err(Errno::FAULT));
    }
    let job = [0u64; 5];
    assert_eq!(submit((&raw const job) as u64), Ok(0), "dropped: no tasks");
    // SAFETY: the argument is a null pointer.
    assert_eq!(unsafe { raw.ioctl(SUBMIT, None) }, Err(Errno::FAULT));
    assert_eq!(raw.poll(), Ok(0));
    assert_eq!(raw.read(&mut [0; 8]), Err(Errno::AGAIN));
}
