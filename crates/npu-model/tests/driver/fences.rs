// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random jobs and fences of two files against a few lines of sets: a fence
//! is the set of jobs that it stands for.

#![cfg(not(miri))]

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, OwnedFd};

use proptest::prelude::*;
use rustix::event::PollFlags;

use crate::client::*;
use crate::script::Step;
use crate::shared::*;

/// Objects that both files have.
const OBJECTS: usize = 3;

/// Two files never meet on one of so many cores: an idle one takes a core
/// that nobody used last.
const CORES: usize = 4;

#[derive(Clone, Debug)]
enum Action {
    /// A job of one of the files; per object whether it reads or writes it.
    Submit {
        file: usize,
        uses: [Option<bool>; OBJECTS],
    },
    /// Lets one of the jobs at a gate end.
    End {
        which: usize,
    },
    Export {
        object: usize,
        writes: bool,
    },
    Import {
        object: usize,
        writes: bool,
        fence: usize,
    },
    Merge {
        a: usize,
        b: usize,
    },
}

fn action() -> impl Strategy<Value = Action> {
    let object = 0..OBJECTS;
    prop_oneof![
        4 => (0usize..2, any::<[Option<bool>; OBJECTS]>())
            .prop_map(|(file, uses)| Action::Submit { file, uses }),
        3 => any::<usize>().prop_map(|which| Action::End { which }),
        2 => (object.clone(), any::<bool>())
            .prop_map(|(object, writes)| Action::Export { object, writes }),
        2 => (object, any::<bool>(), any::<usize>())
            .prop_map(|(object, writes, fence)| Action::Import { object, writes, fence }),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Action::Merge { a, b }),
    ]
}

type Jobs = BTreeSet<u32>;

#[derive(Debug, Default)]
struct Spec {
    ended: Jobs,
    /// Of each unfinished job what it waits for.
    waits: BTreeMap<u32, Jobs>,
    /// The last job of each file.
    last: [Option<u32>; 2],
    writers: [Jobs; OBJECTS],
    readers: [Jobs; OBJECTS],
}

impl Spec {
    fn in_the_way(&self, object: usize, writes: bool) -> Jobs {
        let mut jobs = self.writers[object].clone();
        if writes {
            jobs.extend(&self.readers[object]);
        }
        &jobs - &self.ended
    }

    fn submit(&mut self, job: u32, file: usize, uses: &[Option<bool>; OBJECTS]) {
        let mut waits = Jobs::from_iter(self.last[file].replace(job));
        for (object, writes) in uses.iter().enumerate() {
            if let &Some(writes) = writes {
                waits.extend(self.in_the_way(object, writes));
            }
        }
        for (object, writes) in uses.iter().enumerate() {
            if *writes == Some(true) {
                self.writers[object].insert(job);
            }
        }
        self.waits.insert(job, waits);
    }

    fn running(&self) -> Vec<u32> {
        let ready = |waits: &Jobs| waits.is_subset(&self.ended);
        let running = self.waits.iter().filter(|(_, waits)| ready(waits));
        running.map(|(&job, _)| job).collect()
    }
}

struct World {
    spec: Spec,
    bench: Bench,
    files: [Client; 2],
    /// The shared objects as each file knows them.
    objects: [[Bo; OBJECTS]; 2],
    dma_bufs: [OwnedFd; OBJECTS],
    fences: Vec<(Jobs, OwnedFd)>,
    /// Of each job its own fence.
    ends: BTreeMap<u32, OwnedFd>,
}

impl World {
    fn new() -> Self {
        let bench = Bench::new(CORES);
        let files = [bench.client(), bench.client()];
        let own = [(); OBJECTS].map(|()| files[0].create(4096).unwrap());
        let dma_bufs = own.map(|bo| files[0].0.prime_export(bo.handle).unwrap());
        let import = |index: usize| {
            let handle = files[1].0.prime_import(dma_bufs[index].as_raw_fd());
            Bo {
                handle: handle.unwrap(),
                ..own[index]
            }
        };
        let imported = [0, 1, 2].map(import);
        Self {
            spec: Spec::default(),
            bench,
            files,
            objects: [own, imported],
            dma_bufs,
            fences: Vec::new(),
            ends: BTreeMap::new(),
        }
    }

    fn perform(&mut self, action: Action) {
        let count = self.fences.len();
        match action {
            Action::Submit { file, uses } => self.submit(file, &uses),
            Action::End { which } => {
                let running = self.spec.running();
                if !running.is_empty() {
                    self.end(running[which % running.len()]);
                }
            }
            Action::Export { object, writes } => {
                let fence = export_fence(&self.dma_bufs[object], 1 + u32::from(writes)).unwrap();
                self.fences
                    .push((self.spec.in_the_way(object, writes), fence));
            }
            Action::Import {
                object,
                writes,
                fence,
            } if count > 0 => {
                let (jobs, fence) = &self.fences[fence % count];
                let flags = 1 + u32::from(writes);
                import_fence(&self.dma_bufs[object], flags, fence.as_raw_fd()).unwrap();
                let side = if writes {
                    &mut self.spec.writers
                } else {
                    &mut self.spec.readers
                };
                side[object].extend(jobs);
            }
            Action::Merge { a, b } if count > 0 => {
                let ((jobs, a), (more, b)) = (&self.fences[a % count], &self.fences[b % count]);
                self.fences.push((jobs | more, merge(a, b)));
            }
            Action::Import { .. } | Action::Merge { .. } => {}
        }
    }

    fn submit(&mut self, file: usize, uses: &[Option<bool>; OBJECTS]) {
        let client = &self.files[file];
        let job = self.ends.len() as u32;
        let of = |wanted| {
            let objects = self.objects[file].iter().zip(uses);
            objects
                .filter(move |(_, uses)| **uses == Some(wanted))
                .map(|(&bo, _)| bo)
        };
        let end = client.create(1).unwrap();
        let writes: Vec<_> = of(true).chain([end]).collect();
        client.run(
            &[Step::Wait { gate: job }],
            &of(false).collect::<Vec<_>>(),
            &writes,
        );
        let dma_buf = client.0.prime_export(end.handle).unwrap();
        self.ends.insert(job, export_fence(&dma_buf, READ).unwrap());
        self.spec.submit(job, file, uses);
    }

    fn end(&mut self, job: u32) {
        self.bench.stage.open_gate(job);
        assert!(readable(&self.ends[&job], None));
        self.spec.waits.remove(&job);
        self.spec.ended.insert(job);
    }

    fn check(&self) {
        let running = self.spec.running();
        for (&job, fence) in &self.ends {
            if running.contains(&job) {
                self.bench.stage.await_arrival(job);
            } else {
                assert!(!self.bench.stage.is_waiting_at(job), "{job} is too early");
            }
            assert_eq!(readable(fence, AT_ONCE), self.spec.ended.contains(&job));
        }
        for (jobs, fence) in &self.fences {
            let signalled = jobs.is_subset(&self.spec.ended);
            assert_eq!(readable(fence, AT_ONCE), signalled);
            assert_eq!(info(fence).status, i32::from(signalled));
        }
        for (object, dma_buf) in self.dma_bufs.iter().enumerate() {
            for (event, writes) in [(PollFlags::IN, false), (PollFlags::OUT, true)] {
                let free = self.spec.in_the_way(object, writes).is_empty();
                assert_eq!(
                    file(dma_buf).poll(event),
                    if free { event } else { PollFlags::empty() }
                );
            }
            let prepared = self.files[1].prep(self.objects[1][object].handle, 0);
            assert_eq!(
                prepared.is_ok(),
                self.spec.in_the_way(object, false).is_empty()
            );
        }
    }
}

proptest! {
    #![proptest_config(test_support::cases(48))]

    #[test]
    fn jobs_and_fences_are_sets_of_jobs(actions in prop::collection::vec(action(), 1..30)) {
        let mut world = World::new();
        for action in actions {
            world.perform(action);
            world.check();
        }
        while let Some(&job) = world.spec.running().first() {
            world.end(job);
            world.check();
        }
        assert!(world.spec.waits.is_empty());
    }
}
