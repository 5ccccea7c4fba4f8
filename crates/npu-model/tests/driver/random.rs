// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random ioctl sequences: nothing panics, nothing hangs, nothing leaks.

use std::time::Duration;

use npu_model::driver::{Arena, Bug, Caches, Caller, ChainedKicks, DriverOptions, DriverProfile};
use proptest::prelude::*;
use rustix::io::Errno;

use crate::client::*;
use crate::script::Step;

/// One call of a random client.
#[derive(Clone, Debug)]
enum Call {
    /// Any request, any bytes.
    Raw {
        request: u32,
        arg: Vec<u8>,
    },
    Create {
        size: u32,
    },
    Close {
        handle: u32,
    },
    Prep {
        handle: u32,
        timeout: i64,
    },
    Fini {
        handle: u32,
    },
    /// A job with random lists; its program is the bytes of a random object.
    Submit {
        job: RandomJob,
        copies: u32,
    },
    Import {
        handle: u32,
    },
    Map {
        page: u64,
        len: usize,
    },
}

#[derive(Clone, Debug)]
struct RandomJob {
    tasks: Vec<(u32, u32)>,
    reads: Vec<u32>,
    writes: Vec<u32>,
}

fn request() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        prop::sample::select(vec![
            VERSION,
            GEM_CLOSE,
            GET_CAP,
            FD_TO_HANDLE,
            CREATE_BO,
            SUBMIT,
            PREP_BO,
            FINI_BO,
        ]),
        // Right letter, any number and size.
        (any::<u8>(), 0u32..80, 0u32..4)
            .prop_map(|(nr, size, dir)| dir << 30 | size << 16 | 0x6400 | u32::from(nr)),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let handle = 0u32..6;
    let list = prop::collection::vec(0u32..6, 0..3);
    let task = (
        prop_oneof![0u32..0x8000, any::<u32>()],
        prop_oneof![0u32..64, any::<u32>()],
    );
    let job = (prop::collection::vec(task, 0..3), list.clone(), list).prop_map(
        |(tasks, reads, writes)| RandomJob {
            tasks,
            reads,
            writes,
        },
    );
    prop_oneof![
        2 => (request(), prop::collection::vec(any::<u8>(), 0..72))
            .prop_map(|(request, arg)| Call::Raw { request, arg }),
        3 => (0u32..20_000).prop_map(|size| Call::Create { size }),
        2 => handle.clone().prop_map(|handle| Call::Close { handle }),
        2 => (handle.clone(), prop_oneof![Just(0i64), Just(i64::MIN), Just(1_000_000)])
            .prop_map(|(handle, timeout)| Call::Prep { handle, timeout }),
        1 => handle.clone().prop_map(|handle| Call::Fini { handle }),
        3 => (job, 1u32..3).prop_map(|(job, copies)| Call::Submit { job, copies }),
        1 => handle.prop_map(|handle| Call::Import { handle }),
        1 => (0u64..8, 0usize..20_000).prop_map(|(page, len)| Call::Map { page, len }),
    ]
}

/// Closes a descriptor that a random HANDLE_TO_FD would leak: such requests
/// are left out, the typed export stands for them.
fn is_export(request: u32) -> bool {
    request & 0xffff == HANDLE_TO_FD & 0xffff
}

fn perform(client: &Client, call: Call, mappings: &mut Vec<npu_model::driver::Mapping>) {
    match call {
        Call::Raw { request, mut arg } => {
            if is_export(request) {
                return;
            }
            let arena = Arena::new();
            arena.push(&arg);
            let _ = client.raw_with(request, &mut arg, &arena as &dyn Caller);
        }
        Call::Create { size } => drop(client.create(size)),
        Call::Close { handle } => drop(client.close(handle)),
        Call::Prep { handle, timeout } => drop(client.prep(handle, timeout)),
        Call::Fini { handle } => drop(client.fini(handle, 0)),
        Call::Submit { job, copies } => {
            let RandomJob {
                tasks,
                reads,
                writes,
            } = job;
            let spec = JobSpec {
                tasks,
                reads,
                writes,
            };
            let submitted = client.submit(&vec![spec; copies as usize]);
            assert!(matches!(submitted, Ok(()) | Err(Errno::NODEV)));
        }
        Call::Import { handle } => {
            use std::os::fd::AsRawFd;
            if let Ok(dma_buf) = client.0.prime_export(handle) {
                let imported = client.0.prime_import(dma_buf.as_raw_fd());
                assert!(imported.is_ok());
            }
        }
        Call::Map { page, len } => {
            use rustix::mm::{MapFlags, ProtFlags};
            let offset = (1 << 32) + page * 4096;
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            mappings.extend(client.0.mmap(offset, len, prot, MapFlags::SHARED));
        }
    }
}

proptest! {
    #![proptest_config(test_support::cases(96))]

    #[test]
    fn sequences_never_panic_and_leave_nothing(
        calls in prop::collection::vec((any::<bool>(), call()), 1..40),
    ) {
        let bench = Bench::with_hang_timeout(2, Duration::ZERO);
        let clients = [bench.client(), bench.client()];
        let mut mappings = Vec::new();
        for (which, call) in calls {
            perform(&clients[usize::from(which)], call, &mut mappings);
        }
        drop(clients);
        drop(mappings);
        // The device still works, and gives what was used again.
        let client = bench.client();
        let out = client.create(64).unwrap();
        prop_assert_eq!((out.handle, out.iova), (1, 0));
        let write = Step::Write { iova: out.iova, value: 1 };
        client.run(&[write], &[], &[out]);
        client.prep(out.handle, FOREVER).unwrap();
        prop_assert_eq!(client.value(out), 1);
        let killed_by_model = bench.driver.events().iter().any(|event| {
            matches!(event, npu_model::event::Event::JobKilled {
                cause: npu_model::event::KillCause::ModelFailure, ..
            })
        });
        prop_assert!(!killed_by_model);
    }
}

proptest! {
    #![proptest_config(test_support::cases(48))]

    /// The same on other kernels, with bugs and without, for root: whatever
    /// breaks in the kernel, the model stands.
    #[test]
    fn no_kernel_takes_the_model_with_it(
        calls in prop::collection::vec((any::<bool>(), call()), 1..40),
        profile in prop::sample::select(DriverProfile::ALL.to_vec()),
        chained_kicks in prop::sample::select(vec![ChainedKicks::Flagged, ChainedKicks::All]),
        bugs in prop::collection::vec(prop::sample::select(Bug::ALL.to_vec()), 0..4),
        killed in any::<bool>(),
    ) {
        let bench = Bench::with_options(2, DriverOptions {
            hang_timeout: Duration::ZERO,
            profile: DriverProfile { chained_kicks, free_delay: Duration::ZERO, ..profile },
            bugs: bugs.into_iter().collect(),
            privileged: true,
            registers_lost: true,
            caches: Caches::Manual,
            memory: Some(64 << 10),
            ..DriverOptions::default()
        });
        let clients = [bench.client_as(true), bench.client_as(true)];
        let mut mappings = Vec::new();
        for (which, call) in calls {
            perform(&clients[usize::from(which)], call, &mut mappings);
        }
        let [first, second] = clients;
        drop(mappings);
        if killed {
            first.kill();
        } else {
            drop(first);
        }
        drop(second);
        // A job in flight may bring the kernel down at any moment, also
        // between these lines.
        let down = bench.driver.is_oopsed();
        let created = bench.client().create(4096);
        if created == Err(Errno::NODEV) {
            prop_assert!(bench.driver.is_oopsed());
        } else {
            prop_assert_eq!(created.map(|bo| (bo.handle, bo.iova)), Ok((1, 0)));
            prop_assert!(!down);
        }
    }
}

/// Several threads on one file, as multi-threaded clients are: whatever the
/// interleaving, each thread's own work comes out right.
#[test]
fn threads_share_a_file() {
    const THREADS: u32 = 4;
    const ROUNDS: u32 = if cfg!(miri) { 2 } else { 40 };
    let bench = Bench::new(3);
    let (first, second) = (bench.client(), bench.client());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let client = if thread % 2 == 0 { &first } else { &second };
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let value = thread << 16 | round;
                    let (a, b) = (client.create(4096).unwrap(), client.create(100).unwrap());
                    let put = Step::Write {
                        iova: a.iova + 8,
                        value,
                    };
                    let copy = Step::Copy {
                        from: a.iova + 8,
                        to: b.iova,
                    };
                    let (put, copy) = (client.program(&[put]), client.program(&[copy]));
                    client
                        .submit(&[
                            JobSpec::new(&put, &[put.bo], &[a]),
                            JobSpec::new(&copy, &[copy.bo, a], &[b]),
                        ])
                        .unwrap();
                    client.prep(b.handle, FOREVER).unwrap();
                    assert_eq!(client.value(b), value);
                    for handle in [a.handle, b.handle, put.bo.handle, copy.bo.handle] {
                        client.close(handle).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(first.0.handles_in_use() + second.0.handles_in_use(), 0);
    let fresh = first.create(4096).unwrap();
    assert_eq!((fresh.handle, fresh.iova, fresh.offset), (1, 0, 1 << 32));
}
