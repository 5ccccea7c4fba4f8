// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of refused jobs: the reason, and the returned buffers.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod common;

use common::{A_BYTES, B_BYTES, C_BYTES, Mock, alloc, program};
use rocket_uapi::{Bo, Device, Error, Iova, Job, JobBuilder, ProgramBo, Refusal};

struct Parts {
    device: Device,
    a: Bo,
    b: Bo,
    c: Bo,
    programs: ProgramBo,
}

fn parts(mock: &Mock) -> Parts {
    let device = mock.device();
    let [a, b, c] = [A_BYTES, B_BYTES, C_BYTES].map(|len| alloc(&device, len).unwrap());
    let linked = program(&a, &b, &c);
    let programs = ProgramBo::new(&device, &[linked.clone(), linked]).unwrap();
    Parts {
        device,
        a,
        b,
        c,
        programs,
    }
}

/// Builds, and checks that the buffers come back.
fn refusal(builder: JobBuilder, reads: usize, writes: usize) -> Refusal {
    let error = builder.build().unwrap_err();
    assert_eq!((error.reads.len(), error.writes.len()), (reads, writes));
    error.refusal
}

#[test]
fn a_job_needs_programs_and_an_output() {
    let parts = parts(&Mock::default());
    let job = || Job::builder(&parts.device);
    assert_eq!(refusal(job(), 0, 0), Refusal::NoPrograms);
    let idle = job().reads_owned(parts.a).writes(parts.c);
    assert_eq!(refusal(idle, 1, 1), Refusal::NoPrograms);
    let mute = job().program(&parts.programs).reads_owned(parts.b);
    assert_eq!(refusal(mute, 1, 0), Refusal::NothingWritten);
    let beyond = job().task(&parts.programs, 2);
    let expected = Refusal::NoSuchProgram { index: 2, len: 2 };
    assert_eq!(refusal(beyond, 0, 0), expected);
}

#[test]
fn a_program_bo_needs_programs() {
    let error = ProgramBo::new(&Mock::default().device(), &[]).unwrap_err();
    assert_eq!(error, Error::NoProgram);
}

/// Bits 3 to 0 of BASE_ADDRESS are no address bits: an unaligned program hangs the NPU.
#[test]
fn programs_lie_where_the_npu_can_fetch_them() {
    for bit in 0..4 {
        let mock = Mock::default();
        let parts = parts(&mock);
        let linked = program(&parts.a, &parts.b, &parts.c);
        let address = Iova(0x10_0000 | 1 << bit);
        mock.lock().wrong_iova = Some(address);
        let error = ProgramBo::new(&parts.device, &[linked]).unwrap_err();
        assert_eq!(error, Error::Unaligned(address));
    }
}

#[test]
fn a_job_takes_buffers_of_its_own_file_only() {
    let ours = parts(&Mock::default());
    let theirs = parts(&Mock::default());
    let handle = theirs.b.handle();
    let builder = Job::builder(&ours.device)
        .program(&ours.programs)
        .reads_owned(ours.a)
        .reads(&theirs.b.freeze())
        .writes(ours.c);
    assert_eq!(refusal(builder, 1, 1), Refusal::ForeignBo(handle));
    let handle = theirs.programs.bo().handle();
    let builder = Job::builder(&ours.device)
        .program(&theirs.programs)
        .writes(ours.b);
    assert_eq!(refusal(builder, 0, 1), Refusal::ForeignBo(handle));
}

/// Ownership prevents listing a buffer twice, but a backend can return one handle twice.
#[test]
fn a_handle_that_a_backend_gives_twice_is_noticed() {
    let mock = Mock::default();
    let parts = parts(&mock);
    let handle = parts.c.handle();
    mock.lock().same_handle = Some(handle);
    let twin = alloc(&parts.device, 1).unwrap();
    let builder = Job::builder(&parts.device)
        .program(&parts.programs)
        .reads_owned(parts.a)
        .reads_owned(twin)
        .reads(&parts.b.freeze())
        .writes(parts.c);
    assert_eq!(refusal(builder, 2, 1), Refusal::NamedTwice(handle));
}

#[test]
fn reads_and_writes_must_be_listed_as_such() {
    let parts = parts(&Mock::default());
    let job = || Job::builder(&parts.device).program(&parts.programs);
    let mut error = job()
        .reads_owned(parts.a)
        .writes(parts.c)
        .build()
        .unwrap_err();
    assert!(matches!(error.refusal, Refusal::ReadOutside(_)), "{error}");
    let (a, c) = (error.reads.remove(0), error.writes.remove(0));
    let swapped = job().reads_owned(c).reads(&parts.b.freeze()).writes(a);
    let refused = refusal(swapped, 1, 1);
    assert!(matches!(refused, Refusal::WriteOutside(_)), "{refused}");
}

#[test]
fn inputs_may_lie_in_written_buffers_and_be_named_often() {
    let parts = parts(&Mock::default());
    let b = parts.b.freeze();
    let job = Job::builder(&parts.device)
        .task(&parts.programs, 1)
        .task(&parts.programs, 0)
        .reads(&b)
        .reads(&b)
        .writes(parts.a)
        .writes(parts.c)
        .build()
        .unwrap();
    let (reads, writes) = job.into_bos();
    assert_eq!((reads.len(), writes.len()), (0, 2));
}
