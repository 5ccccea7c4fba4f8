// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bugs of the real driver: an event each, and what they do where they
//! are switched on.

use std::time::Duration;

use npu_model::driver::{Bug, DriverBugs, DriverOptions, DriverProfile};
use npu_model::event::Event;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::client::*;
use crate::script::Step;

const GATE: u32 = 1;

/// A kernel that holds a job's objects for a given time after its end.
fn holding(delay: Duration, bugs: DriverBugs) -> Bench {
    let profile = DriverProfile {
        free_delay: delay,
        ..DriverProfile::default()
    };
    Bench::with_profile(1, profile, bugs)
}

/// Longer than any test takes, and no time at all.
const LONG: Duration = Duration::from_secs(3600);
const NONE: Duration = Duration::ZERO;

/// Every entry of a file whose kernel is down.
fn assert_down(bench: &Bench, client: &Client) {
    assert!(bench.driver.is_oopsed());
    assert_eq!(client.create(4096), Err(Errno::NODEV));
    assert_eq!(client.raw(VERSION, &mut [0; 64]), Err(Errno::NODEV));
    assert_eq!(client.raw(0x5401, &mut []), Err(Errno::NODEV));
    assert_eq!(client.submit(&[]), Err(Errno::NODEV));
    assert_eq!(client.0.poll(), PollFlags::HUP | PollFlags::ERR);
    assert_eq!(client.0.read_nonblocking(&mut []), Err(Errno::NODEV));
    let mapped = client
        .0
        .mmap(1 << 32, 4096, ProtFlags::READ, MapFlags::SHARED);
    assert_eq!(mapped.err(), Some(Errno::NODEV));
}

/// One job, waited for; then the file is closed.
fn run_and_close(bench: &Bench) {
    let client = bench.client();
    let out = client.create(4096).unwrap();
    client.run(&[Step::Log { number: 1 }], &[], &[out]);
    client.prep(out.handle, FOREVER).unwrap();
}

#[test]
fn closing_right_after_a_wait_is_noticed() {
    let bench = holding(LONG, DriverBugs::NONE);
    run_and_close(&bench);
    assert_eq!(bench.bugs(), [Bug::UseAfterClose]);
    assert!(!bench.driver.is_oopsed(), "switched off");
    run_and_close(&bench);
}

#[test]
fn closing_later_is_fine() {
    let bench = holding(NONE, DriverBugs::all());
    run_and_close(&bench);
    assert_eq!(bench.bugs(), []);
    assert!(!bench.driver.is_oopsed());
}

#[test]
fn closing_right_after_a_wait_brings_the_kernel_down() {
    let bench = holding(LONG, DriverBugs::all());
    let other = bench.client();
    run_and_close(&bench);
    let events = bench.driver.events();
    let [Event::KernelBug { oops: true, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(events[0].to_string().contains("down"), "{}", events[0]);
    assert_down(&bench, &other);
}

/// A file that never ran a job has nothing to wait for.
#[test]
fn closing_without_jobs_is_fine() {
    let bench = holding(LONG, DriverBugs::all());
    let client = bench.client();
    client.create(4096).unwrap();
    drop(client);
    assert_eq!(bench.bugs(), []);
}

/// A job in flight that uses no object leaves none behind.
#[test]
fn closing_with_a_job_in_flight() {
    for lists_objects in [true, false] {
        let only = [Bug::UseAfterClose].into_iter().collect();
        let bench = holding(NONE, only);
        let (client, other) = (bench.client(), bench.client());
        let program = client.program(&[Step::Wait { gate: GATE }]);
        let reads = if lists_objects {
            vec![program.bo]
        } else {
            vec![]
        };
        client
            .submit(&[JobSpec::new(&program, &reads, &[])])
            .unwrap();
        bench.stage.await_arrival(GATE);
        drop(client);
        // Another file's job runs behind the one in flight.
        let next = other.create(4096).unwrap();
        other.run(&[Step::Log { number: 1 }], &[], &[next]);
        assert!(!bench.driver.is_oopsed());
        bench.stage.open_gate(GATE);
        let waited = other.prep(next.handle, FOREVER);
        let down = bench.driver.is_oopsed();
        assert!(waited.is_ok() || down);
        assert_eq!(down, lists_objects);
    }
}

#[cfg(not(miri))]
mod exports {
    use super::*;

    #[test]
    fn an_exported_object_needs_gem_close_before_its_file() {
        let bench = holding(NONE, DriverBugs::NONE);
        let client = bench.client();
        let bo = client.create(4096).unwrap();
        drop(client.0.prime_export(bo.handle).unwrap());
        drop(client);
        assert_eq!(bench.bugs(), [Bug::UseAfterClose]);

        let client = bench.client();
        let bo = client.create(4096).unwrap();
        drop(client.0.prime_export(bo.handle).unwrap());
        client.close(bo.handle).unwrap();
        drop(client);
        assert_eq!(bench.bugs(), [], "the workaround");
    }

    #[test]
    fn a_dma_buf_must_not_outlive_its_file() {
        let bench = holding(NONE, DriverBugs::NONE);
        let client = bench.client();
        let bo = client.create(4096).unwrap();
        let dma_buf = client.0.prime_export(bo.handle).unwrap();
        client.close(bo.handle).unwrap();
        drop(client);
        assert_eq!(bench.bugs(), []);
        drop(dma_buf);
        // Dma-bufs are looked after whenever a file comes by.
        bench.client().create(4096).unwrap();
        assert_eq!(bench.bugs(), [Bug::UseAfterClose]);
    }

    /// An object that was imported keeps the file of its maker in danger.
    #[test]
    fn an_import_must_not_outlive_its_maker() {
        let bench = holding(NONE, DriverBugs::all());
        let (maker, user) = (bench.client(), bench.client());
        let bo = maker.create(4096).unwrap();
        let dma_buf = maker.0.prime_export(bo.handle).unwrap();
        use std::os::fd::AsRawFd;
        user.0.prime_import(dma_buf.as_raw_fd()).unwrap();
        drop(dma_buf);
        maker.close(bo.handle).unwrap();
        drop(maker);
        assert!(!bench.driver.is_oopsed());
        drop(user);
        assert!(bench.driver.is_oopsed());
    }
}

#[test]
fn after_2_gib_later_objects_fail() {
    let bench = Bench::with_profile(1, DriverProfile::default(), DriverBugs::all());
    let client = bench.client();
    let hole = client.create(4096).unwrap();
    client.create(4096).unwrap();
    client.close(hole.handle).unwrap();
    assert_eq!(client.create(1 << 31), Err(Errno::NOMEM));
    assert_eq!(bench.bugs(), [Bug::HugeBo]);
    let small = client.create(4096).unwrap();
    assert_eq!(small.iova, hole.iova, "an older hole still serves");
    for _ in 0..2 {
        assert_eq!(client.create(4096), Err(Errno::NOMEM));
    }
    assert_eq!(bench.client().create(4096).unwrap().iova, 0, "per file");
    assert!(!bench.driver.is_oopsed());
}

#[test]
fn after_2_gib_nothing_fails_where_it_is_switched_off() {
    let bench = Bench::new(1);
    let client = bench.client();
    assert_eq!(client.create(1 << 31), Err(Errno::NOMEM));
    assert_eq!(client.create(4096).unwrap().iova, 0);
    assert_eq!(bench.bugs(), [Bug::HugeBo]);
}

#[test]
fn get_unique() {
    for (bugs, expected) in [
        (DriverBugs::NONE, Errno::INVAL),
        (DriverBugs::all(), Errno::NODEV),
    ] {
        let bench = Bench::with_profile(1, DriverProfile::default(), bugs);
        let client = bench.client();
        assert_eq!(client.raw(GET_UNIQUE, &mut [0; 16]), Err(expected));
        assert_eq!(bench.bugs(), [Bug::GetUnique]);
        assert_eq!(bench.driver.is_oopsed(), expected == Errno::NODEV);
    }
}

#[test]
fn absurd_counts_warn() {
    let bench = Bench::new(1);
    let client = bench.client();
    let arena = npu_model::driver::Arena::new();
    let mut whole = submit_bytes(arena.push(&[0; 40]), u32::MAX, 40, 0);
    let result = client.raw_with(SUBMIT, &mut whole, &arena);
    assert_eq!(result, Err(Errno::NOMEM));
    assert_eq!(bench.bugs(), [Bug::CountWarning]);

    let mut job = JobSpec {
        tasks: vec![(0, 2)],
        ..JobSpec::default()
    }
    .place(&arena);
    job[24..28].copy_from_slice(&0xf000_0000u32.to_le_bytes());
    let mut single = submit_bytes(arena.push(&job), 1, 40, 0);
    assert_eq!(client.raw_with(SUBMIT, &mut single, &arena), Ok(0));
    assert_eq!(bench.bugs(), [Bug::CountWarning]);

    let bench = Bench::with_profile(1, DriverProfile::default(), DriverBugs::all());
    let client = bench.client();
    client.raw_with(SUBMIT, &mut single, &arena).unwrap();
    assert_down(&bench, &client);
}

#[test]
fn a_dma_error_warns() {
    let only = [Bug::DmaWarning].into_iter().collect();
    let bench = Bench::with_profile(1, DriverProfile::default(), only);
    let client = bench.client();
    let out = client.create(4096).unwrap();
    let map = client.map(out);
    let write = Step::Write {
        iova: out.iova,
        value: 7,
    };
    client.run(&[write, Step::Raise { status: 0x1100 }], &[], &[out]);
    let waited = client.prep(out.handle, FOREVER);
    assert!(matches!(waited, Ok(()) | Err(Errno::NODEV)));
    while !bench.driver.is_oopsed() {
        std::thread::yield_now();
    }
    assert_down(&bench, &client);
    let mut bytes = [0; 4];
    read(&map, 0, &mut bytes);
    assert_eq!(bytes, 7u32.to_le_bytes(), "memory is still there");
}

/// Kernels before the fix of CREATE_BO.
#[test]
fn a_failed_create_leaves_a_handle() {
    let old = DriverProfile::LINUX_6_18;
    let bench = Bench::with_profile(1, old.clone(), DriverBugs::NONE);
    let client = bench.client();
    client.create(1 << 31).unwrap_err();
    assert_eq!(client.create(4096).unwrap().handle, 1, "switched off");

    let only = || [Bug::DanglingHandle].into_iter().collect();
    type Use = fn(&Client);
    let uses: [Use; 3] = [
        |client| assert_eq!(client.prep(1, 0), Err(Errno::NOENT)),
        |client| assert_eq!(client.close(1), Ok(())),
        |client| client.submit(&[list_of_one()]).unwrap(),
    ];
    for touch in uses {
        let bench = Bench::with_profile(1, old.clone(), only());
        let client = bench.client();
        assert_eq!(client.create(0), Err(Errno::NOSPC));
        assert_eq!(client.create(1 << 31), Err(Errno::NOMEM));
        assert_eq!(client.create(4096).unwrap().handle, 2, "1 is taken");
        assert!(!bench.driver.is_oopsed());
        touch(&client);
        assert_down(&bench, &client);
    }
    let bench = Bench::with_profile(1, old, only());
    let (client, other) = (bench.client(), bench.client());
    client.create(1 << 31).unwrap_err();
    drop(client);
    assert_down(&bench, &other);

    let bench = Bench::with_profile(1, DriverProfile::LINUX_7_2, only());
    let client = bench.client();
    client.create(1 << 31).unwrap_err();
    assert_eq!(client.create(4096).unwrap().handle, 1, "fixed");
}

fn list_of_one() -> JobSpec {
    JobSpec {
        tasks: vec![(0, 2)],
        reads: vec![1],
        writes: vec![],
    }
}

/// What rocket-uapi's clients do, under all bugs: nothing is run into.
#[test]
fn the_workaround_in_plain_ioctls() {
    let options = DriverOptions {
        bugs: DriverBugs::all(),
        ..DriverOptions::default()
    };
    let delay = options.profile.free_delay;
    let bench = Bench::with_options(1, options);
    let client = bench.client();
    let bo = client.create(4096).unwrap();
    let mapping = client.map(bo);
    let write = Step::Write {
        iova: bo.iova,
        value: 1,
    };
    let program = client.program(&[write]);
    client
        .submit(&[JobSpec::new(&program, &[program.bo], &[bo])])
        .unwrap();
    client.prep(bo.handle, FOREVER).unwrap();
    let mut bytes = [0; 4];
    read(&mapping, 0, &mut bytes);
    assert_eq!(bytes, 1u32.to_le_bytes());
    drop(mapping);
    client.close(bo.handle).unwrap();
    client.close(program.bo.handle).unwrap();
    std::thread::sleep(delay);
    drop(client);
    assert_eq!(bench.bugs(), []);
}
