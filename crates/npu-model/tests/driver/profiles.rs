// SPDX-License-Identifier: MIT OR Apache-2.0
//! What differs between kernels, machines and their settings.

use std::time::Duration;

use npu_model::driver::{Arena, ChainedKicks, DriverBugs, DriverOptions, DriverProfile, Iommu};
use npu_model::event::Event;
use rustix::io::Errno;

use crate::client::*;
use crate::script::Step;

fn bench(profile: DriverProfile) -> Bench {
    Bench::with_profile(1, profile, DriverBugs::NONE)
}

/// CREATE_BO's raw outputs: handle and address.
fn create_raw(client: &Client, size: u32) -> Result<(u32, u64), Errno> {
    let mut arg = [0; 24];
    arg[0..4].copy_from_slice(&size.to_le_bytes());
    client.raw(CREATE_BO, &mut arg)?;
    let handle = u32::from_le_bytes(arg[4..8].try_into().unwrap());
    Ok((handle, u64::from_le_bytes(arg[8..16].try_into().unwrap())))
}

/// 4 GiB behind the rk_iommu, more behind an SMMUv3.
#[cfg(not(miri))]
#[test]
fn the_aperture_is_the_iommus() {
    const GIB: u32 = 1 << 30;
    for iommu in [Iommu::Rockchip, Iommu::SmmuV3] {
        let bench = bench(DriverProfile {
            iommu,
            ..DriverProfile::default()
        });
        let client = bench.client();
        for _ in 0..4 {
            create_raw(&client, GIB).unwrap();
        }
        let fifth = create_raw(&client, GIB);
        match iommu {
            Iommu::Rockchip => assert_eq!(fifth, Err(Errno::NOSPC)),
            Iommu::SmmuV3 => assert_eq!(fifth, Ok((5, 1 << 32))),
        }
    }
}

/// Before the fix of CREATE_BO nobody looked whether there was an address.
#[cfg(not(miri))]
#[test]
fn a_full_address_space_has_another_error_in_old_kernels() {
    for (profile, errno) in [
        (DriverProfile::LINUX_7_0, Errno::NOMEM),
        (DriverProfile::LINUX_7_1, Errno::NOSPC),
    ] {
        let bench = bench(profile);
        let client = bench.client();
        for _ in 0..4 {
            client.create(1 << 30).unwrap();
        }
        assert_eq!(client.create(4096), Err(errno));
    }
}

/// A deadline lasts until the end of its tick.
#[test]
fn deadlines_are_rounded_up_to_ticks() {
    let mut moment = Duration::from_millis(2);
    loop {
        // A new one each time: the gate opens whichever way it goes.
        let bench = bench(DriverProfile {
            tick: Duration::from_secs(3600),
            ..DriverProfile::default()
        });
        let client = bench.client();
        let out = client.create(4096).unwrap();
        client.run(&[Step::Wait { gate: 1 }], &[], &[out]);
        bench.stage.await_arrival(1);
        let deadline = after(moment);
        let result = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.prep(out.handle, deadline));
            while after(Duration::ZERO) <= deadline {
                std::thread::yield_now();
            }
            // Past it, and the call has either begun in time or not.
            bench.stage.open_gate(1);
            waiter.join().unwrap()
        });
        match result {
            // A slow host came too late; so give it more.
            Err(Errno::BUSY) => moment *= 4,
            other => {
                assert_eq!(other, Ok(()), "waited past its deadline");
                return;
            }
        }
    }
}

#[test]
fn idle_cores_lose_their_registers_where_asked() {
    for (lost, autosuspend, resets) in [
        (true, Duration::ZERO, 2),
        (true, Duration::MAX, 0),
        (false, Duration::ZERO, 0),
    ] {
        let bench = Bench::with_options(
            1,
            DriverOptions {
                registers_lost: lost,
                profile: DriverProfile {
                    autosuspend,
                    ..DriverProfile::default()
                },
                ..DriverOptions::default()
            },
        );
        let client = bench.client();
        let out = client.create(4096).unwrap();
        for _ in 0..3 {
            client.run(&[Step::Log { number: 1 }], &[], &[out]);
            client.prep(out.handle, FOREVER).unwrap();
        }
        let told = |event: &&Event| matches!(event, Event::RegistersLost { core: 0 });
        let events = bench.driver.events();
        assert_eq!(events.iter().filter(told).count(), resets);
        assert_eq!(bench.stage.resets().len(), resets);
    }
}

/// A core that was reset after a hang stays awake until a job completes.
#[test]
fn a_hang_keeps_its_core_awake() {
    let bench = Bench::with_options(
        1,
        DriverOptions {
            hang_timeout: Duration::ZERO,
            registers_lost: true,
            profile: DriverProfile {
                autosuspend: Duration::ZERO,
                ..DriverProfile::default()
            },
            ..DriverOptions::default()
        },
    );
    let client = bench.client();
    let out = client.create(4096).unwrap();
    let lost = || {
        let events = bench.driver.take_events();
        let told = |event: &&Event| matches!(event, Event::RegistersLost { .. });
        events.iter().filter(told).count()
    };
    for (step, expected) in [
        (Step::Hang, 0),
        (Step::Log { number: 1 }, 0),
        (Step::Log { number: 2 }, 1),
    ] {
        client.run(&[step], &[], &[out]);
        client.prep(out.handle, FOREVER).unwrap();
        assert_eq!(lost(), expected, "{step:?}");
    }
}

#[test]
fn the_board_has_so_much_memory() {
    let bench = Bench::with_options(
        1,
        DriverOptions {
            memory: Some(3 * 4096),
            ..DriverOptions::default()
        },
    );
    let (client, other) = (bench.client(), bench.client());
    let first = client.create(4097).unwrap();
    assert_eq!(client.create(4097), Err(Errno::NOMEM));
    other.create(1).unwrap();
    assert_eq!(other.create(1), Err(Errno::NOMEM), "shared by all files");
    client.close(first.handle).unwrap();
    assert_eq!(other.create(8192).map(|bo| bo.handle), Ok(2));
    assert_eq!(other.create(1), Err(Errno::NOMEM));
}

/// A client cannot take the host's memory by CREATE_BO alone: pages come with
/// their first touch.
#[cfg(not(miri))]
#[test]
fn a_hundred_gib_of_objects_cost_nothing() {
    let bench = Bench::new(1);
    let clients: Vec<_> = (0..25).map(|_| bench.client()).collect();
    for client in &clients {
        for _ in 0..4 {
            client.create(1 << 30).unwrap();
        }
    }
}

/// What the core was told: TASK_CON and program of each kick.
fn kicks(bench: &Bench) -> Vec<(u32, u32)> {
    let value = |kick: &Vec<(u32, u32)>, register| {
        let write = kick.iter().rev().find(|(offset, _)| *offset == register);
        write.map_or(0, |(_, value)| *value)
    };
    let kicks = bench.stage.kicks();
    kicks
        .iter()
        .map(|kick| (value(kick, 0x30), value(kick, 0x10)))
        .collect()
}

/// Submits a job of three tasks in the patched structure, with `flags`.
fn submit_flagged(client: &Client, flags: u32) -> Bo {
    let out = client.create(4096).unwrap();
    let programs: Vec<_> = (0..3)
        .map(|number| client.program(&[Step::Log { number }]))
        .collect();
    let arena = Arena::new();
    let spec = JobSpec {
        tasks: programs.iter().map(Program::task).collect(),
        reads: vec![],
        writes: vec![out.handle],
    };
    let mut job = spec.place(&arena).to_vec();
    job.extend(flags.to_le_bytes());
    job.extend([0; 4]);
    let mut arg = submit_bytes(arena.push(&job), 1, 48, 0);
    client.raw_with(SUBMIT, &mut arg, &arena).unwrap();
    client.prep(out.handle, FOREVER).unwrap();
    programs[0].bo
}

#[test]
fn chained_jobs_get_one_kick_where_the_kernel_has_it() {
    for (chained_kicks, flags, chained) in [
        (ChainedKicks::Never, 1, false),
        (ChainedKicks::Flagged, 0, false),
        (ChainedKicks::Flagged, 1, true),
        (ChainedKicks::All, 0, true),
    ] {
        let bench = bench(DriverProfile {
            chained_kicks,
            ..DriverProfile::default()
        });
        let client = bench.client();
        let first = submit_flagged(&client, flags);
        let kicks = kicks(&bench);
        if chained {
            assert_eq!(kicks, [(0x7003, first.iova)], "{chained_kicks:?}");
        } else {
            let tasks: Vec<_> = kicks.iter().map(|(task_con, _)| *task_con).collect();
            assert_eq!(tasks, [0x7001; 3], "{chained_kicks:?}");
        }
    }
}
