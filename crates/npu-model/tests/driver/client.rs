// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client that speaks plain ioctls, and a device for it.

use std::sync::Arc;
use std::time::Duration;

use npu_model::driver::{
    Arena, Backing, Bug, Caller, Driver, DriverBugs, DriverOptions, DriverProfile, DrmFile,
    Mapping, NpuCore,
};
use npu_model::event::Event;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::script::{STEP_WORDS, ScriptedCore, Stage, Step};

pub use rocket_uapi::sys::{
    CREATE_BO, FINI_BO, GEM_CLOSE, GET_CAP, PREP_BO, PRIME_FD_TO_HANDLE as FD_TO_HANDLE,
    PRIME_HANDLE_TO_FD as HANDLE_TO_FD, SUBMIT, VERSION,
};

/// `DRM_IOCTL_GEM_FLINK`, which clients do without.
pub const GEM_FLINK: u32 = 0xc008_640a;

/// `DRM_IOCTL_GEM_OPEN`, which clients do without.
pub const GEM_OPEN: u32 = 0xc010_640b;

/// `DRM_IOCTL_GET_UNIQUE`, which clients do without.
pub const GET_UNIQUE: u32 = 0xc010_6401;

/// No deadline.
pub const FOREVER: i64 = i64::MAX;

pub const BACKING: Backing = if cfg!(miri) {
    Backing::Heap
} else {
    Backing::Memfd
};

/// A device whose cores run scripts.
pub struct Bench {
    pub driver: Driver,
    pub stage: Arc<Stage>,
}

impl Bench {
    pub fn new(cores: usize) -> Self {
        Self::with_hang_timeout(cores, Duration::from_millis(1))
    }

    pub fn with_hang_timeout(cores: usize, hang_timeout: Duration) -> Self {
        let options = DriverOptions {
            hang_timeout,
            ..DriverOptions::default()
        };
        Self::with_options(cores, options)
    }

    /// Another kernel; hangs end after a millisecond.
    pub fn with_profile(cores: usize, profile: DriverProfile, bugs: DriverBugs) -> Self {
        let options = DriverOptions {
            hang_timeout: Duration::from_millis(1),
            profile,
            bugs,
            ..DriverOptions::default()
        };
        Self::with_options(cores, options)
    }

    pub fn with_options(cores: usize, options: DriverOptions) -> Self {
        let stage = Arc::new(Stage::default());
        let options = DriverOptions {
            backing: BACKING,
            trace: true,
            ..options
        };
        let cores: Vec<Box<dyn NpuCore>> = ScriptedCore::all(cores, &stage);
        Self {
            driver: Driver::new(options, cores),
            stage,
        }
    }

    pub fn client(&self) -> Client {
        self.client_as(false)
    }

    pub fn client_as(&self, privileged: bool) -> Client {
        Client(self.driver.open_as(privileged), Arc::clone(&self.stage))
    }

    /// The bugs that clients ran into since the last look at the events.
    pub fn bugs(&self) -> Vec<Bug> {
        let bug = |event| match event {
            Event::KernelBug { bug, .. } => Some(bug),
            _ => None,
        };
        let events = self.driver.take_events();
        events.into_iter().filter_map(bug).collect()
    }

    pub fn drops(&self) -> Vec<String> {
        let dropped = |event| match event {
            Event::JobDropped { reason, .. } => Some(reason),
            _ => None,
        };
        self.driver
            .take_events()
            .into_iter()
            .filter_map(dropped)
            .collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stage.let_all_pass_after_a_panic();
    }
}

/// One open file.
pub struct Client(pub DrmFile, Arc<Stage>);

impl Drop for Client {
    fn drop(&mut self) {
        self.1.let_all_pass_after_a_panic();
    }
}

/// A buffer object as CREATE_BO describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bo {
    pub handle: u32,
    pub iova: u32,
    pub offset: u64,
}

/// A job in numbers: tasks (address, words), read handles, written handles.
#[derive(Clone, Debug, Default)]
pub struct JobSpec {
    pub tasks: Vec<(u32, u32)>,
    pub reads: Vec<u32>,
    pub writes: Vec<u32>,
}

impl JobSpec {
    pub fn new(program: &Program, reads: &[Bo], writes: &[Bo]) -> Self {
        Self {
            tasks: vec![program.task()],
            reads: reads.iter().map(|bo| bo.handle).collect(),
            writes: writes.iter().map(|bo| bo.handle).collect(),
        }
    }

    /// Places the job's arrays in `arena` and returns its 40 bytes.
    pub fn place(&self, arena: &Arena) -> [u8; 40] {
        let tasks: Vec<u8> = self
            .tasks
            .iter()
            .flat_map(|(regcmd, words)| [regcmd.to_le_bytes(), words.to_le_bytes()].concat())
            .collect();
        let list = |handles: &[u32]| -> Vec<u8> {
            handles
                .iter()
                .flat_map(|handle| handle.to_le_bytes())
                .collect()
        };
        let mut job = [0; 40];
        job[0..8].copy_from_slice(&arena.push(&tasks).to_le_bytes());
        job[8..16].copy_from_slice(&arena.push(&list(&self.reads)).to_le_bytes());
        job[16..24].copy_from_slice(&arena.push(&list(&self.writes)).to_le_bytes());
        job[24..28].copy_from_slice(&(self.tasks.len() as u32).to_le_bytes());
        job[28..32].copy_from_slice(&8u32.to_le_bytes());
        job[32..36].copy_from_slice(&(self.reads.len() as u32).to_le_bytes());
        job[36..40].copy_from_slice(&(self.writes.len() as u32).to_le_bytes());
        job
    }
}

/// A script in a buffer object of its own.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub bo: Bo,
    pub words: u32,
}

impl Program {
    pub fn task(&self) -> (u32, u32) {
        (self.bo.iova, self.words)
    }
}

pub fn submit_bytes(jobs: u64, count: u32, stride: u32, reserved: u64) -> [u8; 24] {
    let mut arg = [0; 24];
    arg[0..8].copy_from_slice(&jobs.to_le_bytes());
    arg[8..12].copy_from_slice(&count.to_le_bytes());
    arg[12..16].copy_from_slice(&stride.to_le_bytes());
    arg[16..24].copy_from_slice(&reserved.to_le_bytes());
    arg
}

/// A deadline from now on.
pub fn after(duration: Duration) -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec + i64::try_from(duration.as_nanos()).unwrap()
}

impl Client {
    pub fn raw(&self, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        self.0.ioctl(request, arg, &Arena::new())
    }

    pub fn raw_with(&self, request: u32, arg: &mut [u8], user: &dyn Caller) -> Result<i32, Errno> {
        self.0.ioctl(request, arg, user)
    }

    pub fn create(&self, size: u32) -> Result<Bo, Errno> {
        let mut arg = [0; 24];
        arg[0..4].copy_from_slice(&size.to_le_bytes());
        self.raw(CREATE_BO, &mut arg)?;
        let u64_at = |at: usize| u64::from_le_bytes(arg[at..at + 8].try_into().unwrap());
        Ok(Bo {
            handle: u32::from_le_bytes(arg[4..8].try_into().unwrap()),
            iova: u32::try_from(u64_at(8)).unwrap(),
            offset: u64_at(16),
        })
    }

    /// The process of this client ends.
    pub fn kill(self) {
        self.close_file(&|| true);
    }

    /// Closes its file; the process may be ending.
    pub fn close_file(mut self, is_ending: &dyn Fn() -> bool) -> usize {
        let spare = self.0.reopen();
        std::mem::replace(&mut self.0, spare).close(is_ending)
    }

    pub fn close(&self, handle: u32) -> Result<(), Errno> {
        let mut arg = [0; 8];
        arg[0..4].copy_from_slice(&handle.to_le_bytes());
        self.raw(GEM_CLOSE, &mut arg).map(drop)
    }

    pub fn prep(&self, handle: u32, timeout_ns: i64) -> Result<(), Errno> {
        self.prep_reserved(handle, 0, timeout_ns)
    }

    pub fn prep_reserved(&self, handle: u32, reserved: u32, timeout: i64) -> Result<(), Errno> {
        let mut arg = [0; 16];
        arg[0..4].copy_from_slice(&handle.to_le_bytes());
        arg[4..8].copy_from_slice(&reserved.to_le_bytes());
        arg[8..16].copy_from_slice(&timeout.to_le_bytes());
        self.raw(PREP_BO, &mut arg).map(drop)
    }

    /// Waits with a deadline a little ahead. A slow host may be past it when
    /// the call comes, so it is given more and more.
    pub fn prep_a_moment(&self, handle: u32) -> Result<(), Errno> {
        let mut moment = Duration::from_millis(3);
        loop {
            let deadline = after(moment);
            match self.prep(handle, deadline) {
                Err(Errno::BUSY) => moment *= 4,
                result => {
                    assert!(result.is_ok() || after(Duration::ZERO) >= deadline);
                    return result;
                }
            }
        }
    }

    pub fn fini(&self, handle: u32, reserved: u32) -> Result<(), Errno> {
        let mut arg = [0; 8];
        arg[0..4].copy_from_slice(&handle.to_le_bytes());
        arg[4..8].copy_from_slice(&reserved.to_le_bytes());
        self.raw(FINI_BO, &mut arg).map(drop)
    }

    pub fn submit(&self, jobs: &[JobSpec]) -> Result<(), Errno> {
        let arena = Arena::new();
        let array: Vec<u8> = jobs.iter().flat_map(|job| job.place(&arena)).collect();
        let at = arena.push(&array);
        let mut arg = submit_bytes(at, jobs.len() as u32, 40, 0);
        self.raw_with(SUBMIT, &mut arg, &arena).map(drop)
    }

    pub fn map(&self, bo: Bo) -> Mapping {
        self.0.map_handle(bo.handle).unwrap()
    }

    /// A script in a fresh buffer object.
    pub fn program(&self, script: &[Step]) -> Program {
        let bytes = Step::bytes(script);
        let bo = self.create(bytes.len() as u32).unwrap();
        write(&self.map(bo), 0, &bytes);
        Program {
            bo,
            words: script.len() as u32 * STEP_WORDS,
        }
    }

    /// Submits one script as one job that writes `writes`.
    pub fn run(&self, script: &[Step], reads: &[Bo], writes: &[Bo]) {
        let program = self.program(script);
        self.submit(&[JobSpec::new(&program, reads, writes)])
            .unwrap();
    }

    /// The number at the start of a buffer object.
    pub fn value(&self, bo: Bo) -> u32 {
        let mut bytes = [0; 4];
        read(&self.map(bo), 0, &mut bytes);
        u32::from_le_bytes(bytes)
    }
}

/// Copies bytes into a mapping that no running job touches.
pub fn write(map: &Mapping, at: usize, data: &[u8]) {
    assert!(at + data.len() <= map.len());
    let target = map.as_ptr().wrapping_add(at);
    // SAFETY: the range lies in the mapping (just checked), which is
    // writable in the tests that come here; no core is in it meanwhile.
    unsafe { target.copy_from_nonoverlapping(data.as_ptr(), data.len()) }
}

/// Copies bytes out of a mapping that no running job touches.
pub fn read(map: &Mapping, at: usize, out: &mut [u8]) {
    assert!(at + out.len() <= map.len());
    let source = map.as_ptr().wrapping_add(at);
    // SAFETY: as in `write`, for reading.
    unsafe { source.copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) }
}
