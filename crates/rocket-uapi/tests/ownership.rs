// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ownership tests: what owns a buffer, the order in which things are closed, and no leaks.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod common;

use std::time::{Duration, Instant};

use common::{
    Event, Fate, Mock, RESULT, alloc, builder, ends, fail_each_call, in_place_job, job, job_into,
    soon, submit,
};
use rocket_uapi::{ByteLen, Deadline, Device, DevicePool, Error, Iova, PAGE_BYTES, WaitError};

/// Uses each function of the crate once; an error ends it early.
fn scenario(device: &Device) -> Result<(), Box<dyn std::error::Error>> {
    let pool = DevicePool::open(device, 2)?;
    let first = builder(device)?.build()?;
    let second = builder(device)?.build()?;
    let mut pending = device.submit(vec![first, second])?;
    let abandoned = pending.pop();
    for job in pending {
        let done = job.wait(soon())?;
        done.writes[0].read(soon())?;
    }
    drop(abandoned);
    drop(builder(&pool.devices()[1])?);
    Ok(())
}

#[test]
fn nothing_is_left_behind_wherever_a_call_fails() {
    for fates in [
        &[Fate::RunsAtOnce, Fate::RunsAtOnce][..],
        &[Fate::Runs, Fate::Runs],
        &[Fate::IsDropped, Fate::Runs, Fate::IsDropped],
        &[Fate::RunsLate, Fate::Runs, Fate::RunsLate],
        &[Fate::IsKilled; 3],
    ] {
        // A fate may cause an error, which is part of the scenario.
        let _ = fail_each_call(fates, scenario);
    }
}

#[test]
fn a_bo_is_unmapped_then_closed_then_its_file() {
    let mock = Mock::default();
    let bo = alloc(&mock.device(), 1).unwrap();
    let handle = bo.handle();
    assert_eq!(mock.take_events(), [Event::Create(handle)]);
    drop(bo);
    let expected = [Event::Unmap(handle), Event::Close(handle), Event::CloseFile];
    assert_eq!(mock.take_events(), expected);
}

#[test]
#[cfg_attr(miri, ignore = "needs pipes")]
fn a_dma_buf_is_closed_before_its_file() {
    let mock = Mock::default();
    let bo = alloc(&mock.device(), 1).unwrap();
    let handle = bo.handle();
    let dma_buf = bo.export().unwrap();
    assert_eq!(dma_buf.len(), PAGE_BYTES);
    mock.take_events();
    drop(dma_buf);
    let expected = [
        Event::Unmap(handle),
        Event::Close(handle),
        Event::CloseDmaBuf,
        Event::CloseFile,
    ];
    assert_eq!(mock.take_events(), expected);
}

#[test]
fn an_export_that_fails_gives_the_bo_back() {
    let mock = Mock::default();
    let bo = alloc(&mock.device(), 1).unwrap();
    mock.fail_at(0);
    let (error, bo) = bo.export().unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert_eq!(bo.len(), PAGE_BYTES);
}

#[test]
fn guards_give_access() {
    let mock = Mock::default();
    let mut bo = alloc(&mock.device(), 8).unwrap();
    let mut access = bo.write(soon()).unwrap();
    access.as_mut_slice_of::<u16>()[1] = 0x0102;
    access.finish().unwrap();
    let frozen = bo.freeze();
    let access = frozen.read(soon()).unwrap();
    assert_eq!(access.as_slice_of::<u32>()[0].to_ne_bytes(), {
        let [low, high] = 0x0102_u16.to_ne_bytes();
        [0, 0, low, high]
    });
    assert_eq!(access.as_slice_of::<[u8; 3]>().len(), PAGE_BYTES / 3);

    // It becomes writable again only without other owners.
    let other = frozen.clone();
    let frozen = frozen.thaw().unwrap_err();
    drop(other);
    let mut bo = frozen.thaw().unwrap();
    bo.write(soon()).unwrap().as_mut_slice_of::<u8>()[0] = 9;
    assert_eq!(bo.read(soon()).unwrap()[0], 9);
}

/// Calls PREP_BO only after a job has written, and FINI_BO only after the CPU has written.
#[test]
fn caches_are_walked_where_that_does_something() {
    let mock = Mock::new(&[Fate::Runs, Fate::Runs]);
    let device = mock.device();
    let mut bo = alloc(&device, 8).unwrap();
    let handle = bo.handle();
    mock.take_events();
    assert_eq!(bo.read(soon()).unwrap()[0], 0);
    assert_eq!(mock.take_events(), [], "zeroes that are known");
    for _ in 0..2 {
        bo.write(soon()).unwrap().fill(1);
        assert_eq!(bo.read(soon()).unwrap()[0], 1);
        assert_eq!(mock.take_events(), [Event::Fini(handle)]);
    }

    let first = job(&device);
    mock.take_events();
    let pending = submit(first, &device);
    let c = pending.wait(soon()).unwrap().writes.remove(0);
    let handle = c.handle();
    assert_eq!(ends(&c), ends(&c));
    let events = mock.take_events();
    // The operands of all witnesses, and the job's page.
    let [Event::Create(ones), _, Event::Create(page), ..] = events[..] else {
        panic!("a page expected: {events:?}");
    };
    let made = [ones, page].map(|bo| [Event::Create(bo), Event::Fini(bo)]);
    let made = made.concat();
    let looked = [
        Event::Submit { jobs: 1 },
        Event::Prep(page),
        Event::Prep(handle),
        Event::Prep(page),
    ];
    assert_eq!(events[..8], [&made[..], &looked[..]].concat());
    let passes = |event: &Event| matches!(event, Event::Prep(_) | Event::Fini(_));
    assert!(!events[8..].iter().any(passes), "{events:?}");

    // Another job writes the output of the first; the CPU has only read it.
    let again = job_into(&device, c);
    mock.take_events();
    let before = device.cache_traffic();
    let pending = submit(again, &device);
    assert_eq!(ends(&pending.wait(soon()).unwrap().writes[0]).0, RESULT);
    let (bytes, traffic) = (PAGE_BYTES as u64, device.cache_traffic());
    assert_eq!(traffic.fini_bytes - before.fini_bytes, bytes);
    assert_eq!(traffic.prep_bytes - before.prep_bytes, 3 * bytes);
    let cleared = [Event::Fini(page)];
    assert_eq!(
        mock.take_events()[..5],
        [&cleared[..], &looked[..]].concat()
    );
}

/// Writes through a guard that was forgotten reach the next job.
#[test]
fn a_forgotten_guard_loses_nothing() {
    let mock = Mock::new(&[Fate::Runs]);
    let device = mock.device();
    let mut c = alloc(&device, PAGE_BYTES).unwrap();
    let handle = c.handle();
    std::mem::forget(c.write(soon()).unwrap());
    let job = job_into(&device, c);
    mock.take_events();
    let pending = submit(job, &device);
    assert!(mock.take_events().contains(&Event::Fini(handle)));
    drop(pending.wait(soon()).unwrap());
}

#[test]
fn the_file_stays_open_until_the_driver_has_let_go() {
    let settle = Duration::from_millis(30);
    let mock = Mock::new(&[Fate::Runs]);
    mock.lock().settle = settle;
    let device = mock.device();
    let pending = submit(job(&device), &device);
    // This is before the job's end that the device notes.
    let running = Instant::now();
    let done = pending.wait(soon()).unwrap();
    drop((done, device));
    mock.assert_all_gone("after the wait");
    assert!(running.elapsed() >= settle);
}

#[test]
#[cfg_attr(miri, ignore = "leaks on purpose")]
fn buffers_of_a_job_that_does_not_end_are_leaked() {
    let mock = Mock::new(&[Fate::Hangs]);
    let device = mock.device();
    drop(submit(job(&device), &device));
    drop(device);
    // A, B, C, the programs, the job's page and the operands of its witness.
    assert_eq!(mock.open_things().0, 6);
    assert!(!mock.events().contains(&Event::CloseFile));
}

/// The end of the job is unknown, and nobody gets its memory before the kernel has closed
/// the file.
#[test]
fn a_device_that_is_gone_is_not_waited_for_and_leaks_nothing() {
    // Fail after CREATE_BO and FINI_BO of the witness's operands and of the page, and
    // SUBMIT: first the look at the job, then the wait for it.
    for at in 5..7 {
        for wait in [false, true] {
            let mock = Mock::new(&[Fate::Hangs]);
            let device = mock.device();
            let job = job(&device);
            mock.vanish_at(at);
            let pending = submit(job, &device);
            if wait {
                let error = pending.wait(Deadline::FOREVER).unwrap_err();
                let source = Error::DeviceGone("PREP_BO");
                assert!(matches!(error, WaitError::Device { source: of, .. } if of == source));
            } else {
                drop(pending);
            }
            drop(device);
            mock.assert_all_gone("the device is gone");
        }
    }
}

#[test]
fn a_refused_submit_gives_everything_back_as_it_was() {
    // CREATE and FINI of two pages; SUBMIT.
    for failing in 0..5 {
        let mock = Mock::default();
        let device = mock.device();
        let jobs = vec![job(&device), in_place_job(&device, 0)];
        mock.fail_at(failing);
        let error = device.submit(jobs).unwrap_err();
        assert_eq!(error.jobs.len(), 2);
        for job in error.jobs {
            let (_, writes) = job.into_bos();
            assert_eq!(ends(&writes[0]), (0x11, 0x11), "call {failing}");
        }
        assert_eq!(mock.lock().submissions, 0);
        drop(device);
        mock.assert_all_gone("nothing was submitted");
    }
}

#[test]
fn a_job_of_another_file_is_refused() {
    let device = Mock::default().device();
    let other = Mock::default().device();
    let error = device.submit(vec![job(&other)]).unwrap_err();
    assert_eq!((error.source, error.jobs.len()), (Error::OtherDevice, 1));
    assert!(device.submit(Vec::new()).unwrap().is_empty());
}

#[test]
fn handles_that_a_backend_must_not_give_are_closed() {
    let mock = Mock::default();
    let device = mock.device();
    mock.lock().wrong_iova = Some(Iova(0xffff_f000));
    let error = device.alloc(ByteLen::new(2 * PAGE_BYTES).unwrap());
    let address = 0xffff_f000;
    assert_eq!(error.unwrap_err(), Error::AddressTooHigh { address });
    mock.lock().wrong_iova = Some(Iova(0xffff_f000));
    assert!(alloc(&device, PAGE_BYTES).is_ok(), "the last page is one");
    mock.lock().short_mapping = true;
    let error = alloc(&device, PAGE_BYTES + 1).unwrap_err();
    assert!(matches!(error, Error::MappingTooShort { .. }), "{error}");
    drop(device);
    mock.assert_all_gone("all of them");
}
