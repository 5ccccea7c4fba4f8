// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of dma-bufs and fences between files: on the model, and on a mock of which each
//! call fails in turn.
#![cfg(not(miri))] // needs sockets, pipes and poll
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod common;

use std::os::fd::{AsFd, OwnedFd};

use common::on_model::{Gate, assert_healthy, frail, impatient};
use common::{C_BYTES, Fate, Mock, alloc, builder, fail_each_call, soon, submit};
use npu_model::driver::Caches;
use npu_model::{Model, ModelOptions};
use rocket_uapi::{
    BufferAccess, Deadline, Device, DmaBuf, Errno, Error, FenceStatus, FrozenBo, Job, JobBuilder,
    PAGE_BYTES, PendingJob, ProgramBo, Refusal, SyncFile, WaitError,
};

/// A device with manual caches: writes of CPU and NPU reach the other only by FINI_BO and
/// PREP_BO.
fn model() -> Device {
    let options = ModelOptions {
        caches: Caches::Manual,
        ..ModelOptions::default()
    };
    Model::new(options).open_device()
}

fn dma_buf(device: &Device) -> DmaBuf {
    let exported = alloc(device, PAGE_BYTES).unwrap().export();
    exported.map_err(|(error, _)| error).unwrap()
}

/// Two files of one device, with a buffer that the first exports and the second imports.
fn pair() -> (Device, Device, DmaBuf, DmaBuf) {
    let (first, second) = {
        let device = model();
        (device.clone(), device.reopen().unwrap())
    };
    let exported = dma_buf(&first);
    let imported = second.import(exported.as_fd()).unwrap();
    (first, second, exported, imported)
}

/// Submits a job of `device`, completed by `with`.
fn submitted(device: &Device, with: impl FnOnce(JobBuilder) -> JobBuilder) -> PendingJob {
    submit(with(builder(device).unwrap()).build().unwrap(), device)
}

#[test]
fn bytes_go_both_ways() {
    let (_, _, exported, imported) = pair();
    assert_eq!((exported.len(), imported.len()), (PAGE_BYTES, PAGE_BYTES));
    imported.write_from(3, b"from there", soon()).unwrap();
    let mut text = [0; 12];
    exported.read_into(2, &mut text, soon()).unwrap();
    assert_eq!(&text, b"\0from there\0");
    exported.write_from(PAGE_BYTES - 1, b"x", soon()).unwrap();
    let mut last = [0];
    imported
        .read_into(PAGE_BYTES - 1, &mut last, soon())
        .unwrap();
    assert_eq!(&last, b"x");
    for (offset, count) in [(PAGE_BYTES, 1), (0, PAGE_BYTES + 1), (usize::MAX, 1)] {
        let refused = imported.write_from(offset, &vec![0; count], soon());
        let len = PAGE_BYTES;
        assert_eq!(refused, Err(Error::OutOfBounds { offset, count, len }));
    }
    assert_eq!(imported.write_from(PAGE_BYTES, b"", soon()), Ok(()));
}

#[test]
fn only_dma_bufs_of_other_files_of_the_device_are_imported() {
    let (first, second, exported, imported) = pair();
    let handle = exported.handle();
    let own = first.import(exported.as_fd()).unwrap_err();
    assert_eq!(own, Error::OwnBuffer(handle));
    let foreign = dma_buf(&model());
    let null = std::fs::File::open("/dev/null").unwrap();
    for fd in [foreign.as_fd(), null.as_fd()] {
        let refused = second.import(fd).unwrap_err();
        assert_eq!(refused, Error::of("PRIME_FD_TO_HANDLE", None, Errno::INVAL));
    }
    // All imports share one handle, which lives as long as any of them.
    let again = second.import(exported.as_fd()).unwrap();
    assert_eq!(again.handle(), imported.handle());
    drop(imported);
    again.write_from(0, b"alive", soon()).unwrap();
    let taken = again.handle();
    assert_ne!(alloc(&second, 1).unwrap().handle(), taken);
    drop(again);
    assert_eq!(alloc(&second, 1).unwrap().handle(), taken, "free again");
    // The refused import into the same file has not closed the handle.
    exported.write_from(0, b"alive", soon()).unwrap();
}

#[test]
fn a_job_waits_for_what_it_is_told_to() {
    let device = model();
    let gate = Gate::new();
    let pending = submitted(&device, |job| job.after(gate.fence(&device)));
    let end = pending.fence().unwrap();
    assert_eq!(end.status(), Ok(FenceStatus::Active));
    assert_eq!(end.wait(Deadline::NOW), Err(Error::FenceTimedOut));
    let WaitError::TimedOut { job: pending } = pending.wait(Deadline::NOW).unwrap_err() else {
        panic!("it cannot have run");
    };
    gate.open();
    assert_eq!(end.wait(soon()), Ok(FenceStatus::Signaled));
    pending.wait(soon()).unwrap();
}

/// A job that reads a shared buffer adds no fence to it. With an added fence, a job of
/// another file that writes the buffer waits.
#[test]
fn write_after_read_is_ordered_by_a_fence() {
    let (reader, writer, exported, imported) = pair();
    let gate = Gate::new();
    let fence = gate.fence(&reader);
    let reading = submitted(&reader, |job| job.after(fence).reads_shared(&exported));
    let write = || submitted(&writer, |job| job.writes_shared(&imported));
    // Without a fence the writer runs first.
    write().wait(soon()).unwrap();
    assert_eq!(reading.fence().unwrap().status(), Ok(FenceStatus::Active));
    exported
        .add_fence(BufferAccess::Read, &reading.fence().unwrap())
        .unwrap();
    let writing = write();
    assert_eq!(writing.fence().unwrap().status(), Ok(FenceStatus::Active));
    let all = imported.fence(BufferAccess::Write).unwrap();
    assert_eq!(all.info().unwrap().fences.len(), 2);
    gate.open();
    writing.wait(soon()).unwrap();
    assert_eq!(
        reading.fence().unwrap().wait(Deadline::NOW),
        Ok(FenceStatus::Signaled)
    );
    reading.wait(soon()).unwrap();
    assert_eq!(all.status(), Ok(FenceStatus::Signaled));
}

#[test]
fn readers_and_the_cpu_wait_for_an_added_writer() {
    let (first, second, exported, imported) = pair();
    let gate = Gate::new();
    let fence = gate.fence(&first);
    exported.add_fence(BufferAccess::Write, &fence).unwrap();
    let handle = imported.handle();
    let read = imported.read_into(0, &mut [0], Deadline::NOW);
    assert_eq!(read, Err(Error::TimedOut(handle)));
    let pending = submitted(&second, |job| job.reads_shared(&imported));
    assert_eq!(pending.fence().unwrap().status(), Ok(FenceStatus::Active));
    gate.open();
    pending.wait(soon()).unwrap();
    imported.read_into(0, &mut [0], Deadline::NOW).unwrap();
}

#[test]
fn a_reader_of_an_own_buffer_holds_up_jobs_that_write_it() {
    let device = model();
    let gate = Gate::new();
    let job = builder(&device).unwrap().build().unwrap();
    let (_, writes) = job.into_bos();
    writes[0].add_reader(&gate.fence(&device)).unwrap();
    writes[0].read(Deadline::NOW).unwrap();
    let of = |access| writes[0].fence(access).unwrap().status();
    assert_eq!(of(BufferAccess::Read), Ok(FenceStatus::Signaled));
    assert_eq!(of(BufferAccess::Write), Ok(FenceStatus::Active));
    gate.open();
    let all = writes[0].fence(BufferAccess::Write).unwrap();
    assert_eq!(all.wait(soon()), Ok(FenceStatus::Signaled));
}

#[test]
fn merged_fences_end_with_the_last_and_tell_of_a_kill() {
    let device = impatient();
    let (well, killing) = (Gate::new(), Gate::new());
    let pending = submitted(&device, |job| job.after(killing.fence(&device)));
    let killed = pending.fence().unwrap();
    let merged = well.fence(&device).merge("both", &killed).unwrap();
    let info = merged.info().unwrap();
    let mut drivers: Vec<_> = info.fences.iter().map(|one| one.driver.as_str()).collect();
    drivers.sort_unstable();
    assert_eq!(
        (info.name.as_str(), &drivers[..]),
        ("both", &["drm_sched", "sw_sync"][..])
    );
    assert!(info.fences.iter().all(|fence| fence.ended.is_none()));
    killing.open();
    let error = FenceStatus::Failed(Errno::CANCELED);
    assert_eq!(killed.wait(soon()), Ok(error));
    let end = pending.wait(soon());
    assert!(matches!(end, Err(WaitError::Killed { .. })));
    assert_eq!(merged.status(), Ok(FenceStatus::Active));
    well.open();
    assert_eq!(merged.wait(Deadline::FOREVER), Ok(error));
    let fences = merged.info().unwrap().fences;
    assert!(fences.iter().all(|fence| fence.ended.is_some()));
}

#[test]
fn other_files_are_no_sync_files() {
    let device = model();
    let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    // An emulator has its own error for unknown requests.
    let emulated = std::env::var("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER").is_ok();
    let by_kernel = if emulated && cfg!(target_arch = "aarch64") {
        Errno::NOSYS
    } else {
        Errno::NOTTY
    };
    for (stranger, errno) in [
        (device.adopt_sync_file(null()), Errno::NOTTY),
        (SyncFile::from(null()), by_kernel),
    ] {
        let refused = Error::of("SYNC_IOC_FILE_INFO", None, errno);
        assert_eq!(stranger.status(), Err(refused));
        let bo = alloc(&device, 1).unwrap();
        let refused = Error::of("IMPORT_SYNC_FILE", None, Errno::INVAL);
        assert_eq!(bo.add_reader(&stranger), Err(refused));
        let refused = Error::of("SYNC_IOC_MERGE", None, Errno::NOENT);
        let fence = bo.fence(BufferAccess::Read).unwrap();
        assert_eq!(fence.merge("", &stranger).unwrap_err(), refused);
    }
}

/// The driver releases the buffer a little after the end of another file's job, which
/// accesses the exporting file: that file must stay open until then.
#[test]
fn sharing_spares_the_kernel() {
    let model = frail();
    let (first, second) = (model.open_device(), model.open_device());
    let exported = dma_buf(&first);
    let imported = second.import(exported.as_fd()).unwrap();
    let fence = exported.fence(BufferAccess::Write).unwrap();
    let pending = submitted(&second, |job| job.writes_shared(&imported).after(fence));
    let end = pending.fence().unwrap();
    drop(pending);
    assert_eq!(end.wait(soon()), Ok(FenceStatus::Signaled));
    drop(imported);
    drop((exported, first));
    drop(second);
    assert_healthy(&model, "fence, import, export, files");
}

/// A matmul whose output lies in a dma-buf.
fn into_shared(device: &Device, output: &DmaBuf) -> (ProgramBo, FrozenBo) {
    let a = alloc(device, PAGE_BYTES).unwrap();
    let zeros = (a.iova(), a.len());
    let program = common::program_at(zeros, zeros, (output.iova().unwrap(), output.len()));
    let programs = ProgramBo::new(device, &[program]).unwrap();
    (programs, a.freeze())
}

#[test]
fn programs_reach_exported_buffers_of_their_file_and_no_others() {
    let device = model();
    let output = dma_buf(&device);
    output.write_from(0, &[0x11; PAGE_BYTES], soon()).unwrap();
    let (programs, input) = into_shared(&device, &output);
    let job = Job::builder(&device).program(&programs).reads(&input);
    let own = alloc(&device, 1).unwrap();
    let read_only = job.reads_shared(&output).writes(own).build().unwrap_err();
    assert!(
        matches!(read_only.refusal, Refusal::WriteOutside(_)),
        "{read_only}"
    );
    let job = Job::builder(&device).program(&programs).reads(&input);
    let pending = submit(job.writes_shared(&output).build().unwrap(), &device);
    let done = pending.wait(soon()).unwrap();
    assert!(done.writes.is_empty());
    let mut result = [0xff; C_BYTES];
    output.read_into(0, &mut result, soon()).unwrap();
    assert!(result.iter().all(|&byte| byte == 0), "zeros times zeros");
}

#[test]
fn a_shared_buffer_is_named_once_and_by_its_own_file() {
    let (first, second, exported, imported) = pair();
    let handle = imported.handle();
    let twice = builder(&second).unwrap().reads_shared(&imported);
    let twice = twice.writes_shared(&imported).build().unwrap_err();
    assert_eq!(twice.refusal, Refusal::NamedTwice(handle));
    let foreign = builder(&first).unwrap().reads_shared(&imported).build();
    assert_eq!(foreign.unwrap_err().refusal, Refusal::ForeignBo(handle));
    let foreign = builder(&second).unwrap().writes_shared(&exported).build();
    let handle = exported.handle();
    assert_eq!(foreign.unwrap_err().refusal, Refusal::ForeignBo(handle));
}

/// Uses each function of sharing once; an error ends it early.
fn scenario(device: &Device) -> Result<(), Box<dyn std::error::Error>> {
    let other = device.reopen()?;
    let exported = alloc(device, 1)?.export().map_err(|(error, _)| error)?;
    let imported = other.import(exported.as_fd())?;
    let again = other.import(exported.as_fd())?;
    imported.write_from(1, b"abc", soon())?;
    exported.read_into(1, &mut [0; 3], soon())?;
    let fence = imported.fence(BufferAccess::Write)?;
    exported.add_fence(BufferAccess::Read, &fence)?;
    let own = alloc(&other, 1)?;
    own.add_reader(&fence)?;
    let merged = fence.merge("both", &own.fence(BufferAccess::Read)?)?;
    merged.wait(soon())?;
    let job = builder(&other)?
        .writes_shared(&again)
        .after(merged)
        .build()?;
    let pending = other.submit(vec![job])?.pop().ok_or("no job")?;
    let end = pending.fence()?;
    pending.wait(soon())?;
    end.wait(soon())?;
    Ok(())
}

#[test]
fn nothing_is_left_behind_wherever_a_call_fails() {
    for fates in [&[Fate::Runs][..], &[Fate::RunsAtOnce], &[Fate::IsDropped]] {
        let (mock, result) = fail_each_call(fates, scenario);
        assert_eq!(result.is_ok(), fates[0] != Fate::IsDropped, "{result:?}");
        assert_eq!(mock.lock().submissions, 1);
    }
}

#[test]
fn an_imported_handle_is_closed_once_and_last() {
    let mock = Mock::default();
    let device = mock.device();
    let other = device.reopen().unwrap();
    let exported = dma_buf(&device);
    let first = other.import(exported.as_fd()).unwrap();
    let second = other.import(exported.as_fd()).unwrap();
    let handle = first.handle();
    mock.take_events();
    drop(first);
    assert_eq!(mock.take_events(), []);
    drop(second);
    assert_eq!(mock.take_events(), [common::Event::Close(handle)]);
}
