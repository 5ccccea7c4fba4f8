// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random calls on kernels with their bugs, which the fuzz target
//! `ioctl_sequence` leaves out, and several threads on one file.

use std::time::Duration;

use npu_model::driver::{Arena, Bug, Caches, DriverProfile, Mapping};
use proptest::prelude::*;
use rocket_uapi::{MapRequest, sys};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::client::*;
use crate::script::Step;

/// Makes one random call: its kind, and two numbers for its arguments.
fn perform(client: &Client, (call, a, b): (u8, u32, u32), mappings: &mut Vec<Mapping>) {
    let handle = a % 6;
    match call {
        0 | 1 => {
            // Right letter, any number, direction and size below 128; an export
            // would leak its descriptor.
            let request = a & 0xc07f_00ff | 0x6400;
            if request as u8 != sys::PRIME_HANDLE_TO_FD as u8 {
                let mut arg = [b; 32];
                let arena = Arena::new();
                arena.push(arg.as_bytes());
                let _ = client.file.ioctl(request, arg.as_mut_bytes(), &arena);
            }
        }
        2..5 => drop(client.create(if b % 9 == 0 { 1 << 31 } else { a % 20_000 })),
        5 => drop(client.close(handle)),
        6 => drop(client.prep(handle, [0, i64::MIN, 1_000_000][b as usize % 3])),
        7 => drop(client.fini(handle)),
        8..11 => {
            let task = sys::Task {
                regcmd: if b % 4 == 0 { b } else { b % 0x8000 },
                regcmd_count: if a % 4 == 0 { a } else { a % 64 },
            };
            let list = |bits: u32| Vec::from_iter((0..bits % 3).map(|index| (bits >> index) % 6));
            let job = Job {
                tasks: vec![task; b as usize % 3],
                reads: list(a >> 8),
                writes: list(b >> 8),
            };
            let submitted = client.submit(&vec![job; 1 + a as usize % 2]);
            assert!(matches!(submitted, Ok(()) | Err(Errno::NODEV)));
        }
        11 => {
            if let Ok(dma_buf) = client.export(handle) {
                let imported = client.import(&dma_buf);
                assert!(matches!(imported, Ok(_) | Err(Errno::NODEV)));
            }
        }
        _ => {
            let (offset, len) = ((1 << 32) + u64::from(a % 8) * 4096, b as usize % 20_000);
            mappings.extend(client.file.mmap(&MapRequest::shared(offset, len)));
        }
    }
}

proptest! {
    #![proptest_config(test_support::cases(144))]

    /// No bug of the kernel breaks the model.
    #[test]
    fn no_kernel_takes_the_model_with_it(
        calls in prop::collection::vec((any::<bool>(), (0..13u8, any::<u32>(), any::<u32>())), 1..40),
        profile in prop::sample::select(DriverProfile::ALL.to_vec()),
        bugs in prop::collection::vec(prop::sample::select(Bug::ALL.to_vec()), 0..4),
        killed in any::<bool>(),
    ) {
        let bench = Bench::with(2, |options| {
            options.hang_timeout = Duration::ZERO;
            options.driver = DriverProfile { free_delay: Duration::ZERO, ..profile };
            options.bugs = bugs.into_iter().collect();
            options.registers_lost = true;
            options.caches = Caches::Manual;
            options.memory = Some(64 << 10);
        });
        let clients = [bench.client(), bench.client()];
        let mut mappings = Vec::new();
        for (which, call) in calls {
            perform(&clients[usize::from(which)], call, &mut mappings);
        }
        let [first, second] = clients;
        drop(mappings);
        first.end(&|| killed);
        drop(second);
        // A job in flight may take the kernel down at any moment, also between
        // these lines.
        let down = bench.model.is_oopsed();
        let client = bench.client();
        let created = client.create(4096);
        if created == Err(Errno::NODEV) {
            prop_assert!(bench.model.is_oopsed());
        } else {
            prop_assert_eq!(created.map(|bo| (bo.handle, bo.dma_address)), Ok((1, 0)));
            prop_assert!(!down);
        }
    }
}

/// Several threads use one file, like a multi-threaded client. Whatever the
/// interleaving, each thread's results are right.
#[test]
fn threads_share_a_file() {
    const THREADS: u32 = 4;
    const ROUNDS: u32 = 40;
    let bench = Bench::new(3);
    let files = [bench.client(), bench.client()];
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let client = &files[thread as usize % 2];
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let value = thread << 16 | round;
                    let (a, b) = (client.page(), client.create(100).unwrap());
                    let at = a.dma_address + 8;
                    let put = client.job(&[Step::Write(at, value)], &[], &[a]);
                    let copy = client.job(&[Step::Copy(at, b.dma_address)], &[a], &[b]);
                    let programs = [put.reads[0], copy.reads[0]];
                    client.submit(&[put, copy]).unwrap();
                    client.wait(b);
                    assert_eq!(client.value(b, 0), value);
                    for handle in [a.handle, b.handle].into_iter().chain(programs) {
                        client.close(handle).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(bench.model.allocated_bytes(), <[u64; 0]>::default());
    let fresh = files[0].page();
    let places = (fresh.handle, fresh.dma_address, fresh.offset);
    assert_eq!(places, (1, 0, 1 << 32));
}
