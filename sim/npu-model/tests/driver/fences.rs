// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random jobs and fences of two files, compared with a short specification in
//! which a fence is the set of its jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use proptest::prelude::*;
use proptest::sample::Index;
use rustix::event::PollFlags;

use crate::client::*;
use crate::script::Step;
use crate::shared::*;

/// Objects that both files have.
const OBJECTS: usize = 3;

/// With so many cores two files never share one: an idle file takes a core that
/// no file used last.
const CORES: usize = 4;

#[derive(Clone, Debug)]
enum Action {
    /// A job of one of the files, and whether it writes or reads each object.
    Submit(usize, [Option<bool>; OBJECTS]),
    /// Ends one of the jobs that wait at a gate.
    End(Index),
    /// Exports the fence that a reader or a writer of the object waits for.
    Export(usize, bool),
    /// Imports one of the fences into an object, as a reader's or a writer's.
    Import(usize, bool, Index),
    Merge(Index, Index),
}

fn action() -> impl Strategy<Value = Action> {
    let which = any::<Index>;
    let access = || (0..OBJECTS, any::<bool>());
    prop_oneof![
        4 => (0usize..2, any::<[Option<bool>; OBJECTS]>())
            .prop_map(|(file, uses)| Action::Submit(file, uses)),
        3 => which().prop_map(Action::End),
        2 => access().prop_map(|(object, writes)| Action::Export(object, writes)),
        2 => (access(), which())
            .prop_map(|((object, writes), fence)| Action::Import(object, writes, fence)),
        1 => (which(), which()).prop_map(|(a, b)| Action::Merge(a, b)),
    ]
}

type Jobs = BTreeSet<u32>;

#[derive(Debug, Default)]
struct Spec {
    ended: Jobs,
    /// The jobs that each unfinished job waits for.
    waits: BTreeMap<u32, Jobs>,
    last: [Option<u32>; 2],
    /// The readers and the writers of each object.
    users: [[Jobs; 2]; OBJECTS],
}

impl Spec {
    fn in_the_way(&self, object: usize, writes: bool) -> Jobs {
        let [readers, writers] = &self.users[object];
        let mut jobs = writers.clone();
        if writes {
            jobs.extend(readers);
        }
        &jobs - &self.ended
    }

    fn submit(&mut self, job: u32, file: usize, uses: &[Option<bool>; OBJECTS]) {
        let mut waits = Jobs::from_iter(self.last[file].replace(job));
        for (object, writes) in uses.iter().enumerate() {
            if let &Some(writes) = writes {
                waits.extend(self.in_the_way(object, writes));
            }
            if *writes == Some(true) {
                self.users[object][1].insert(job);
            }
        }
        self.waits.insert(job, waits);
    }

    fn running(&self) -> Vec<u32> {
        let waits = self.waits.iter();
        let running = waits.filter(|(_, waits)| waits.is_subset(&self.ended));
        running.map(|(&job, _)| job).collect()
    }
}

struct World {
    spec: Spec,
    bench: Bench,
    files: [Client; 2],
    /// The handles of the shared objects in each file.
    objects: [[Bo; OBJECTS]; 2],
    dma_bufs: [OwnedFd; OBJECTS],
    /// All fences with their jobs, among them one for each job.
    fences: Vec<(Jobs, OwnedFd)>,
    jobs: u32,
}

impl World {
    fn new() -> Self {
        let bench = Bench::new(CORES);
        let files = [bench.client(), bench.client()];
        let own = [(); OBJECTS].map(|()| files[0].page());
        let dma_bufs = own.map(|bo| files[0].dma_buf(bo));
        let imported = dma_bufs
            .each_ref()
            .map(|dma_buf| files[1].imported(dma_buf));
        Self {
            spec: Spec::default(),
            bench,
            files,
            objects: [own, imported],
            dma_bufs,
            fences: Vec::new(),
            jobs: 0,
        }
    }

    fn perform(&mut self, action: &Action) {
        let no_fence = self.fences.is_empty();
        match action {
            Action::Submit(file, uses) => self.submit(*file, uses),
            Action::End(which) => {
                let running = self.spec.running();
                if !running.is_empty() {
                    self.end(*which.get(&running));
                }
            }
            &Action::Export(object, writes) => {
                let fence = export_fence(&self.dma_bufs[object], writes);
                let jobs = self.spec.in_the_way(object, writes);
                self.fences.push((jobs, fence));
            }
            _ if no_fence => (),
            Action::Import(object, writes, fence) => {
                let (jobs, fence) = fence.get(&self.fences);
                import_fence(&self.dma_bufs[*object], *writes, fence);
                self.spec.users[*object][usize::from(*writes)].extend(jobs);
            }
            Action::Merge(a, b) => {
                let ((jobs, a), (more, b)) = (a.get(&self.fences), b.get(&self.fences));
                let merged = (jobs | more, merge(a, b).unwrap());
                self.fences.push(merged);
            }
        }
    }

    fn submit(&mut self, file: usize, uses: &[Option<bool>; OBJECTS]) {
        let client = &self.files[file];
        let job = self.jobs;
        self.jobs += 1;
        let of = |wanted| -> Vec<Bo> {
            let objects = self.objects[file].iter().zip(uses);
            let used = objects.filter(|(_, uses)| **uses == Some(wanted));
            used.map(|(&bo, _)| bo).collect()
        };
        let end = client.page();
        client.run(
            &[Step::Wait(job)],
            &of(false),
            &[&of(true)[..], &[end]].concat(),
        );
        let fence = export_fence(&client.dma_buf(end), false);
        self.fences.push((Jobs::from([job]), fence));
        self.spec.submit(job, file, uses);
    }

    fn end(&mut self, job: u32) {
        self.bench.stage.open_gate(job);
        let mut fences = self.fences.iter();
        let (_, end) = fences.find(|(jobs, _)| *jobs == Jobs::from([job])).unwrap();
        assert!(readable(end, true));
        self.spec.waits.remove(&job);
        self.spec.ended.insert(job);
    }

    fn check(&self) {
        let running = self.spec.running();
        for job in 0..self.jobs {
            if running.contains(&job) {
                self.bench.stage.await_arrival(job);
            } else {
                assert!(!self.bench.stage.is_waiting_at(job), "{job} is too early");
            }
        }
        for (jobs, fence) in &self.fences {
            let signalled = jobs.is_subset(&self.spec.ended);
            assert_eq!(readable(fence, false), signalled);
            assert_eq!(status(fence), i32::from(signalled));
        }
        for (object, dma_buf) in self.dma_bufs.iter().enumerate() {
            let free = [false, true].map(|writes| self.spec.in_the_way(object, writes).is_empty());
            for (event, free) in [PollFlags::IN, PollFlags::OUT].into_iter().zip(free) {
                assert_eq!(shared(dma_buf).poll(event) == event, free);
            }
            let prepared = self.files[1].prep(self.objects[1][object].handle, 0);
            assert_eq!(prepared.is_ok(), free[0]);
        }
    }
}

proptest! {
    #![proptest_config(test_support::cases(48))]

    #[test]
    fn jobs_and_fences_are_sets_of_jobs(actions in prop::collection::vec(action(), 1..30)) {
        let mut world = World::new();
        for action in &actions {
            world.perform(action);
            world.check();
        }
        while let Some(&job) = world.spec.running().first() {
            world.end(job);
            world.check();
        }
        prop_assert!(world.spec.waits.is_empty());
    }
}

/// A queue whose head waits for another file holds back its file's other jobs,
/// but not the core.
#[test]
fn a_blocked_queue_does_not_block_its_core() {
    let bench = Bench::new(2);
    let (first, second) = (bench.client(), bench.client());
    let (shared, out) = (first.page(), second.page());
    let imported = second.imported(&first.dma_buf(shared));
    first.run(&[Step::Wait(1), Step::Log(1)], &[], &[shared]);
    bench.stage.await_arrival(1);
    // The busiest core is that of the first file.
    for _ in 0..4 {
        first.run(&[], &[], &[]);
    }
    second.run(&[Step::Log(2)], &[imported], &[]);
    second.run(&[Step::Log(3)], &[], &[out]);
    bench.log_behind(4);
    assert_eq!(bench.stage.log(), [(4, 1)]);
    bench.stage.open_gate(1);
    second.wait(out);
    assert_eq!(bench.stage.order(), [4, 1, 2, 3]);
}
