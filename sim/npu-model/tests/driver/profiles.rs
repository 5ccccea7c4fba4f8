// SPDX-License-Identifier: MIT OR Apache-2.0
//! Differences between kernels, machines and settings.

use std::thread;
use std::time::Duration;

use npu_model::driver::{DriverProfile, Iommu};
use npu_model::event::Event;
use rocket_uapi::Deadline;
use rustix::io::Errno;

use crate::client::*;
use crate::script::Step;

const GIB: u32 = 1 << 30;

fn kernel(name: &str) -> DriverProfile {
    DriverProfile::by_name(name).unwrap()
}

/// The address space has 4 GiB behind the rk_iommu, more behind an SMMUv3.
/// CREATE_BO before its fix did not check that there was an address. Untouched
/// pages take no memory.
#[test]
fn the_aperture_is_the_iommus() {
    let large = DriverProfile {
        iommu: Iommu::SmmuV3,
        ..DriverProfile::default()
    };
    for (profile, fifth) in [
        (kernel("linux-7.0"), Err(Errno::NOMEM)),
        (kernel("linux-7.1"), Err(Errno::NOSPC)),
        (large, Ok(1 << 32)),
    ] {
        let bench = Bench::of(profile, &[]);
        let client = bench.client();
        for _ in 0..4 {
            client.create(GIB).unwrap();
        }
        assert_eq!(client.create(GIB).map(|bo| bo.dma_address), fifth);
    }
}

/// A deadline lasts until the end of its tick.
#[test]
fn deadlines_are_rounded_up_to_ticks() {
    // On a slow host the call may come after the deadline. Then retry with more
    // time.
    for moment in (1..).map(|power| Duration::from_millis(1 << power)) {
        let bench = Bench::with(1, |options| options.driver.tick = Duration::from_secs(3600));
        let client = bench.client();
        let out = client.page();
        client.run(&[Step::Wait(1)], &[], &[out]);
        let deadline = Deadline::after(moment);
        let waited = thread::scope(|scope| {
            scope.spawn(|| {
                while !deadline.has_passed() {
                    thread::yield_now();
                }
                bench.stage.open_gate(1);
            });
            client.prep(out.handle, deadline.as_nanos())
        });
        if waited != Err(Errno::BUSY) {
            return assert_eq!(waited, Ok(()), "past its deadline");
        }
    }
}

/// A core that was reset after a hang stays awake until a job completes.
#[test]
fn idle_cores_lose_their_registers_where_asked() {
    let [job, hang] = [Step::Log(1), Step::Hang];
    for (lost, autosuspend, steps, told) in [
        (true, Duration::ZERO, [job, job, job], [0, 1, 1]),
        (true, Duration::MAX, [job, job, job], [0, 0, 0]),
        (false, Duration::ZERO, [job, job, job], [0, 0, 0]),
        (true, Duration::ZERO, [hang, job, job], [0, 0, 1]),
    ] {
        let bench = Bench::with(1, |options| {
            options.registers_lost = lost;
            options.driver.autosuspend = autosuspend;
        });
        let client = bench.client();
        let losses = steps.map(|step| {
            client.finish(&[step]);
            events_of!(bench, Event::RegistersLost { core } => core).len()
        });
        assert_eq!(losses, told);
        let hangs = usize::from(matches!(steps[0], Step::Hang));
        assert_eq!(bench.stage.resets(), hangs + told.iter().sum::<usize>());
    }
}

#[test]
fn the_board_has_so_much_memory() {
    let bench = Bench::with(1, |options| options.memory = Some(3 * 4096));
    let (client, other) = (bench.client(), bench.client());
    let first = client.create(4097).unwrap();
    assert_eq!(client.create(4097), Err(Errno::NOMEM));
    other.page();
    assert_eq!(other.create(1), Err(Errno::NOMEM), "shared by all files");
    client.close(first.handle).unwrap();
    assert_eq!(other.create(8192).map(|bo| bo.handle), Ok(2));
    assert_eq!(other.create(1), Err(Errno::NOMEM));
}
