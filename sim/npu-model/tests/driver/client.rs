// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client that makes plain ioctls, and a device for it.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use npu_model::driver::{Arena, Bug, DriverProfile, DrmFile, Mapping};
use npu_model::event::Event;
use npu_model::{Model, ModelOptions};
use rocket_uapi::{MappedMemory, sys};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::script::{ScriptedCore, Stage, Step};

/// No deadline.
pub const FOREVER: i64 = i64::MAX;

/// Maps the events since the last call that match a pattern.
macro_rules! events_of {
    ($bench:expr, $($event:pat => $what:expr),+) => {{
        let events = $bench.model.take_events().into_iter();
        events.filter_map(|event| match event { $($event => Some($what),)+ _ => None })
            .collect::<Vec<_>>()
    }};
}
pub(crate) use events_of;

/// A device whose cores run scripts.
pub struct Bench {
    pub model: Arc<Model>,
    pub stage: Arc<Stage>,
}

impl Bench {
    pub fn new(cores: usize) -> Self {
        Self::with(cores, |_| ())
    }

    /// A bench with changed options. Hangs end after a millisecond.
    pub fn with(cores: usize, set: impl FnOnce(&mut ModelOptions)) -> Self {
        let stage = Arc::new(Stage::default());
        let mut options = ModelOptions {
            hang_timeout: Duration::from_millis(1),
            ..ModelOptions::default()
        };
        set(&mut options);
        let cores = (0..cores).map(|index| ScriptedCore::boxed(index, &stage));
        Self {
            model: Model::with_cores(options, cores.collect()),
            stage,
        }
    }

    /// A bench with another kernel.
    pub fn of(profile: DriverProfile, bugs: &[Bug]) -> Self {
        Self::with(1, |options| {
            options.driver = profile;
            options.bugs = bugs.iter().copied().collect();
        })
    }

    pub fn client(&self) -> Client {
        Client {
            file: self.model.open_file(),
            stage: Arc::clone(&self.stage),
        }
    }

    pub fn bugs(&self) -> Vec<Bug> {
        events_of!(self, Event::KernelBug { bug, .. } => bug)
    }

    /// Runs a job of another file that logs `number`. On a device of one core it
    /// runs after all earlier jobs.
    pub fn log_behind(&self, number: u32) {
        self.client().finish(&[Step::Log(number)]);
    }
}

/// A bench with one core, and a client of it.
pub fn bench_and_client() -> (Bench, Client) {
    let bench = Bench::new(1);
    let client = bench.client();
    (bench, client)
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stage.let_all_pass_after_a_panic();
    }
}

pub struct Client {
    pub file: DrmFile,
    stage: Arc<Stage>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stage.let_all_pass_after_a_panic();
    }
}

pub use sys::CreateBo as Bo;

/// A job, with its arrays as vectors.
#[derive(Clone, Debug, Default)]
pub struct Job {
    pub tasks: Vec<sys::Task>,
    pub reads: Vec<u32>,
    pub writes: Vec<u32>,
}

impl Job {
    /// Places the job's arrays in `arena`.
    pub fn place(&self, arena: &Arena) -> sys::Job {
        sys::Job {
            tasks: arena.push(self.tasks.as_bytes()),
            in_bo_handles: arena.push(self.reads.as_bytes()),
            out_bo_handles: arena.push(self.writes.as_bytes()),
            task_count: self.tasks.len() as u32,
            task_struct_size: size_of::<sys::Task>() as u32,
            in_bo_handle_count: self.reads.len() as u32,
            out_bo_handle_count: self.writes.len() as u32,
        }
    }
}

impl Client {
    /// An ioctl whose structure contains no address.
    pub fn call<T: FromBytes + IntoBytes>(&self, request: u32, mut arg: T) -> Result<T, Errno> {
        let called = self.file.ioctl(request, arg.as_mut_bytes(), &Arena::new());
        called.map(|_| arg)
    }

    pub fn create(&self, size: u32) -> Result<Bo, Errno> {
        let bo = Bo {
            size,
            ..Bo::default()
        };
        self.call(sys::CREATE_BO, bo)
    }

    /// A buffer object of one page.
    pub fn page(&self) -> Bo {
        self.create(4096).unwrap()
    }

    /// Closes the file of a process that may be ending.
    pub fn end(mut self, is_ending: &dyn Fn() -> bool) -> usize {
        let spare = self.file.reopen();
        std::mem::replace(&mut self.file, spare).close(is_ending)
    }

    pub fn close(&self, handle: u32) -> Result<(), Errno> {
        self.call(sys::GEM_CLOSE, [handle, 0]).map(drop)
    }

    pub fn prep(&self, handle: u32, timeout_ns: i64) -> Result<(), Errno> {
        let arg = [i64::from(handle), timeout_ns];
        self.call(sys::PREP_BO, arg).map(drop)
    }

    pub fn wait(&self, bo: Bo) {
        self.prep(bo.handle, FOREVER).unwrap();
    }

    pub fn fini(&self, handle: u32) -> Result<(), Errno> {
        self.call(sys::FINI_BO, [handle, 0]).map(drop)
    }

    pub fn submit(&self, jobs: &[Job]) -> Result<(), Errno> {
        let arena = Arena::new();
        let jobs: Vec<_> = jobs.iter().map(|job| job.place(&arena)).collect();
        self.submit_placed(&jobs, &arena)
    }

    /// SUBMIT of job structures with the known fields or more.
    pub fn submit_placed<T: IntoBytes + Immutable>(
        &self,
        jobs: &[T],
        arena: &Arena,
    ) -> Result<(), Errno> {
        let mut arg = sys::Submit {
            jobs: arena.push(jobs.as_bytes()),
            job_count: jobs.len() as u32,
            job_struct_size: size_of::<T>() as u32,
            reserved: 0,
        };
        let submitted = self.file.ioctl(sys::SUBMIT, arg.as_mut_bytes(), arena);
        submitted.map(drop)
    }

    pub fn map(&self, bo: Bo) -> Mapping {
        self.file.map_handle(bo.handle).unwrap()
    }

    /// A job of one script, whose number is in a new object that the job reads.
    pub fn job(&self, script: &[Step], reads: &[Bo], writes: &[Bo]) -> Job {
        let bo = self.page();
        self.set(bo, 0, self.stage.add(script));
        self.fini(bo.handle).unwrap();
        Job {
            tasks: vec![sys::Task {
                regcmd: bo.dma_address as u32,
                regcmd_count: 2,
            }],
            reads: [&[bo], reads].concat().iter().map(|bo| bo.handle).collect(),
            writes: writes.iter().map(|bo| bo.handle).collect(),
        }
    }

    /// Submits one script as one job.
    pub fn run(&self, script: &[Step], reads: &[Bo], writes: &[Bo]) {
        self.submit(&[self.job(script, reads, writes)]).unwrap();
    }

    /// Runs one script to its end.
    pub fn finish(&self, script: &[Step]) {
        let out = self.page();
        self.run(script, &[], &[out]);
        self.wait(out);
    }

    /// The number in a buffer object.
    pub fn value(&self, bo: Bo, at: usize) -> u32 {
        get(&self.map(bo), at)
    }

    pub fn set(&self, bo: Bo, at: usize, value: u32) {
        put(&self.map(bo), at, value);
    }

    pub fn export(&self, handle: u32) -> Result<OwnedFd, Errno> {
        rocket_uapi::export(&self.file, handle, sys::DRM_CLOEXEC | sys::DRM_RDWR)
    }

    pub fn import(&self, dma_buf: &OwnedFd) -> Result<u32, Errno> {
        rocket_uapi::import(&self.file, dma_buf.as_fd())
    }

    pub fn dma_buf(&self, bo: Bo) -> OwnedFd {
        self.export(bo.handle).unwrap()
    }

    /// Imports an object of another file. It has no address here.
    pub fn imported(&self, dma_buf: &OwnedFd) -> Bo {
        Bo {
            handle: self.import(dma_buf).unwrap(),
            ..Bo::default()
        }
    }
}

pub fn new_fd(number: u32) -> OwnedFd {
    // SAFETY: the call has just made this descriptor for this process.
    unsafe { OwnedFd::from_raw_fd(number.cast_signed()) }
}

/// A number in a mapping that no running job touches.
pub fn get(map: &Mapping, at: usize) -> u32 {
    assert!(at + size_of::<u32>() <= map.len());
    let place = map.as_ptr().wrapping_add(at).cast::<u32>();
    // SAFETY: the bytes lie in the mapping (just checked), and nothing writes them
    // meanwhile.
    unsafe { place.read_unaligned() }
}

/// Writes a number; see [`get`].
pub fn put(map: &Mapping, at: usize, value: u32) {
    assert!(at + size_of::<u32>() <= map.len());
    let place = map.as_ptr().wrapping_add(at).cast::<u32>();
    // SAFETY: as in `get`; all mappings that come here are writable.
    unsafe { place.write_unaligned(value) }
}
