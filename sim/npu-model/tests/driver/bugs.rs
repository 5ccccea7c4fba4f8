// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bugs of the real driver: each causes an event, and has its effect if
//! enabled.

use std::time::Duration;

use npu_model::driver::{Arena, Bug, DriverProfile};
use rocket_uapi::{FileOperations, MapRequest, sys};
use rustix::event::PollFlags;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::client::*;
use crate::script::Step;

/// `DRM_IOCTL_GET_UNIQUE`, which clients do not use.
const GET_UNIQUE: u32 = 0xc010_6401;

/// How long a kernel holds a job's objects after its end: longer than any test
/// takes, or not at all.
const LONG: Duration = Duration::from_secs(3600);
const NONE: Duration = Duration::ZERO;

fn holding(free_delay: Duration, bugs: &[Bug]) -> Bench {
    let profile = DriverProfile {
        free_delay,
        ..DriverProfile::default()
    };
    Bench::of(profile, bugs)
}

/// Checks every entry of a file whose kernel is down.
fn assert_down(bench: &Bench, client: &Client) {
    assert!(bench.model.is_oopsed());
    assert_eq!(client.create(4096), Err(Errno::NODEV));
    for request in [sys::VERSION, 0x5401] {
        let refused = client.file.ioctl(request, &mut [0; 64], &Arena::new());
        assert_eq!(refused, Err(Errno::NODEV));
    }
    assert_eq!(client.submit(&[]), Err(Errno::NODEV));
    let file = &client.file;
    let ended = PollFlags::HUP | PollFlags::ERR;
    assert_eq!(file.poll(), Ok(ended.bits() as i16));
    assert_eq!(file.read(&mut []), Err(Errno::NODEV));
    let mapped = file.mmap(&MapRequest::shared(1 << 32, 4096));
    assert_eq!(mapped.err(), Some(Errno::NODEV));
}

#[test]
fn closing_right_after_a_wait() {
    for (delay, bugs, runs, noticed) in [
        (LONG, &[][..], true, 1),
        (LONG, &Bug::ALL, true, 1),
        (NONE, &Bug::ALL, true, 0),
        // A file that never ran a job has nothing to wait for.
        (LONG, &Bug::ALL, false, 0),
    ] {
        let bench = holding(delay, bugs);
        let (client, other) = (bench.client(), bench.client());
        client.page();
        if runs {
            client.finish(&[Step::Log(1)]);
        }
        drop(client);
        let said = bench.model.events().pop().map(|event| event.to_string());
        assert_eq!(bench.bugs(), vec![Bug::UseAfterClose; noticed]);
        if noticed > 0 && !bugs.is_empty() {
            assert!(said.unwrap().ends_with("the kernel is down"));
            assert_down(&bench, &other);
        } else {
            other.page();
        }
    }
}

/// A job in flight triggers the bug only if it uses an object.
#[test]
fn closing_with_a_job_in_flight() {
    for lists_objects in [true, false] {
        let bench = holding(NONE, &[Bug::UseAfterClose]);
        let (client, other) = (bench.client(), bench.client());
        let mut job = client.job(&[Step::Wait(1)], &[], &[]);
        if !lists_objects {
            job.reads.clear();
        }
        client.submit(&[job]).unwrap();
        bench.stage.await_arrival(1);
        drop(client);
        // Another file's job runs behind the one in flight.
        let next = other.page();
        other.run(&[Step::Log(1)], &[], &[next]);
        assert!(!bench.model.is_oopsed());
        bench.stage.open_gate(1);
        let waited = other.prep(next.handle, FOREVER);
        let down = bench.model.is_oopsed();
        assert!(waited.is_ok() || down);
        assert_eq!(down, lists_objects);
    }
}

/// A client has to GEM_CLOSE an exported object, and close its dma-buf and its
/// imports, before it closes the file.
#[test]
fn closing_with_an_exported_object() {
    for (closes, keeps, at_close, later) in [
        (false, false, 1, 0),
        (true, false, 0, 0),
        (true, true, 0, 1),
    ] {
        let bench = holding(NONE, &[]);
        let client = bench.client();
        let bo = client.page();
        let dma_buf = Some(client.dma_buf(bo)).filter(|_| keeps);
        if closes {
            client.close(bo.handle).unwrap();
        }
        drop(client);
        assert_eq!(bench.bugs(), vec![Bug::UseAfterClose; at_close]);
        drop(dma_buf);
        // This collects closed dma-bufs.
        bench.client().page();
        assert_eq!(bench.bugs(), vec![Bug::UseAfterClose; later]);
    }
    let bench = holding(NONE, &Bug::ALL);
    let (maker, user) = (bench.client(), bench.client());
    let bo = maker.page();
    user.imported(&maker.dma_buf(bo));
    maker.close(bo.handle).unwrap();
    drop(maker);
    assert!(!bench.model.is_oopsed());
    drop(user);
    assert!(bench.model.is_oopsed());
}

#[test]
fn after_2_gib_later_objects_fail() {
    let bench = Bench::of(DriverProfile::default(), &Bug::ALL);
    let client = bench.client();
    let hole = client.page();
    client.page();
    client.close(hole.handle).unwrap();
    assert_eq!(client.create(1 << 31), Err(Errno::NOMEM));
    assert_eq!(bench.bugs(), [Bug::HugeBo]);
    assert_eq!(
        client.page().dma_address,
        hole.dma_address,
        "an older hole still serves"
    );
    for _ in 0..2 {
        assert_eq!(client.create(4096), Err(Errno::NOMEM));
    }
    assert_eq!(bench.client().page().dma_address, 0, "per file");

    let (bench, client) = bench_and_client();
    assert_eq!(client.create(1 << 31), Err(Errno::NOMEM));
    assert_eq!(client.page().dma_address, 0, "switched off");
    assert_eq!(bench.bugs(), [Bug::HugeBo]);
}

#[test]
fn get_unique() {
    for (bugs, expected) in [(&[][..], Errno::INVAL), (&Bug::ALL, Errno::NODEV)] {
        let bench = Bench::of(DriverProfile::default(), bugs);
        let client = bench.client();
        let asked = client.file.ioctl(GET_UNIQUE, &mut [0; 16], &Arena::new());
        assert_eq!(asked, Err(expected));
        assert_eq!(bench.bugs(), [Bug::GetUnique]);
        assert_eq!(bench.model.is_oopsed(), expected == Errno::NODEV);
    }
}

#[test]
fn absurd_counts_warn() {
    let (bench, client) = bench_and_client();
    let arena = Arena::new();
    let mut whole = sys::Submit {
        jobs: arena.push(&[0; 40]),
        job_count: u32::MAX,
        job_struct_size: 40,
        reserved: 0,
    };
    let result = client.file.ioctl(sys::SUBMIT, whole.as_mut_bytes(), &arena);
    assert_eq!(result, Err(Errno::NOMEM));
    assert_eq!(bench.bugs(), [Bug::CountWarning]);

    let job = sys::Job {
        task_count: 0xf000_0000,
        ..Job::default().place(&arena)
    };
    client.submit_placed(&[job], &arena).unwrap();
    assert_eq!(bench.bugs(), [Bug::CountWarning]);

    let bench = Bench::of(DriverProfile::default(), &Bug::ALL);
    let client = bench.client();
    client.submit_placed(&[job], &arena).unwrap();
    assert_down(&bench, &client);
}

/// Each error of a job, and what a kernel before 7.2 does at it.
#[test]
fn failing_jobs_before_7_2() {
    let arena = Arena::new();
    let of = |tasks: &[sys::Task], reads: &[u32]| {
        let job = Job {
            tasks: tasks.to_vec(),
            reads: reads.to_vec(),
            ..Job::default()
        };
        job.place(&arena)
    };
    let [good, empty] = [2, 0].map(|regcmd_count| sys::Task {
        regcmd: 0,
        regcmd_count,
    });
    let one = of(&[good], &[]);
    let null = &[Bug::NullDomain][..];
    let both = &[Bug::NullDomain, Bug::TaskDoubleFree][..];
    let short = sys::Job {
        task_struct_size: 7,
        ..one
    };
    let unreadable = sys::Job { tasks: 0, ..one };
    let no_outputs = sys::Job {
        out_bo_handles: 0,
        out_bo_handle_count: 1,
        ..one
    };
    for (what, job, bugs) in [
        ("no tasks", of(&[], &[]), &[][..]),
        ("tasks of 7 bytes", short, null),
        ("a task without words", of(&[good, empty], &[]), both),
        ("tasks at NULL", unreadable, both),
        ("an unknown input", of(&[good], &[4711]), null),
        ("outputs at NULL", no_outputs, null),
    ] {
        for profile in DriverProfile::ALL {
            let expected = if profile.submit_unwinds { &[] } else { bugs };
            let bench = Bench::of(profile.clone(), &[]);
            bench.client().submit_placed(&[job], &arena).unwrap();
            assert_eq!(bench.bugs(), expected, "{what}, {}", profile.name);
            let bench = Bench::of(profile, &Bug::ALL);
            let submitted = bench.client().submit_placed(&[job], &arena);
            let is_down = !expected.is_empty();
            assert_eq!(submitted, if is_down { Err(Errno::NODEV) } else { Ok(()) });
            assert_eq!(bench.model.is_oopsed(), is_down, "{what}");
        }
    }
}

#[test]
fn a_dma_error_warns() {
    let bench = Bench::of(DriverProfile::default(), &[Bug::DmaWarning]);
    let client = bench.client();
    let out = client.page();
    let map = client.map(out);
    let script = [Step::Write(out.dma_address, 7), Step::Raise(0x1100)];
    client.run(&script, &[], &[out]);
    let waited = client.prep(out.handle, FOREVER);
    assert!(matches!(waited, Ok(()) | Err(Errno::NODEV)));
    while !bench.model.is_oopsed() {
        std::thread::yield_now();
    }
    assert_down(&bench, &client);
    assert_eq!(get(&map, 0), 7, "memory is still there");
}

/// Kernels before the fix of CREATE_BO.
#[test]
fn a_failed_create_leaves_a_handle() {
    for (profile, bugs) in [
        (DriverProfile::LINUX_6_18, &[][..]),
        (DriverProfile::LINUX_7_2, &[Bug::DanglingHandle]),
    ] {
        let bench = Bench::of(profile, bugs);
        let client = bench.client();
        client.create(1 << 31).unwrap_err();
        assert_eq!(client.page().handle, 1, "switched off, or fixed");
    }
    let uses: [fn(Client); 4] = [
        |client| assert_eq!(client.prep(1, 0), Err(Errno::NOENT)),
        |client| assert_eq!(client.close(1), Ok(())),
        |client| {
            let mut job = client.job(&[], &[], &[]);
            job.reads.push(1);
            assert_eq!(client.submit(&[job]), Err(Errno::NODEV));
        },
        drop,
    ];
    for touch in uses {
        let bench = Bench::of(DriverProfile::LINUX_6_18, &[Bug::DanglingHandle]);
        let (client, other) = (bench.client(), bench.client());
        assert_eq!(client.create(0), Err(Errno::NOSPC));
        assert_eq!(client.create(1 << 31), Err(Errno::NOMEM));
        assert_eq!(client.page().handle, 2, "1 is taken");
        assert!(!bench.model.is_oopsed());
        touch(client);
        assert_down(&bench, &other);
    }
}
