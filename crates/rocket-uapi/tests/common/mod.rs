// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small mock driver: it counts open things, fails chosen calls, and ends each job as the
//! test wants.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used)]

mod memory;
pub mod on_model;
mod sharing;

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rknpu_regcmd::{
    Binding, BufferId, BufferRef, ChipProfile, LinkedProgram, MatmulTask, TaskType,
};
use rocket_uapi::{
    Bo, ByteLen, Caller, ClientJob, Deadline, Device, DeviceInfo, Errno, Error, FileOperations,
    Handle, Iova, Job, JobBuilder, MapRequest, MappedMemory, PAGE_BYTES, PendingJob, ProgramBo,
    SharedFileOperations, is_busy, sys,
};
use zerocopy::IntoBytes;

use memory::{Mapping, Pages};

/// The byte with which a job that ran fills its first output.
pub const RESULT: u8 = 0x77;

/// How a submitted job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs, and is still busy right after SUBMIT.
    Runs,
    /// It has run before SUBMIT returns.
    RunsAtOnce,
    /// It runs, and ends so late that it may have been killed.
    RunsLate,
    /// It is killed in its first task.
    IsKilled,
    /// It is killed in its last task, after that has written all of the output.
    IsKilledAtItsEnd,
    /// It is killed before the look right after SUBMIT.
    IsKilledUnseen,
    /// It is killed, and the driver reports it.
    IsKilledForSure,
    /// It is dropped silently.
    IsDropped,
    /// It is dropped, and this process looks too late to know.
    IsDroppedUnseen,
    /// It does not end until [`Mock::release`].
    Hangs,
}

/// State of a job: whether it runs, and whether it was killed, if the driver knows.
#[derive(Debug)]
struct MockJob {
    is_active: bool,
    was_killed: Option<bool>,
}

/// A call of the driver, recorded in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Create(Handle),
    Unmap(Handle),
    Close(Handle),
    Prep(Handle),
    Fini(Handle),
    Submit { jobs: usize },
    CloseDmaBuf,
    CloseFile,
}

/// State of the mock, with the wishes of a test.
#[derive(Debug, Default)]
pub struct State {
    /// Calls so far, of all kinds.
    pub calls: usize,
    fail_at: Option<usize>,
    vanish_at: Option<usize>,
    events: Vec<Event>,
    bos: HashMap<Handle, Arc<Pages>>,
    iovas: HashMap<Handle, Iova>,
    next_iova: u32,
    fates: VecDeque<Fate>,
    /// Job that last wrote the BO.
    jobs: HashMap<Handle, Arc<Mutex<MockJob>>>,
    pub submissions: usize,
    pub exports: usize,
    dma_bufs: Vec<sharing::MockDmaBuf>,
    /// The other ends of the sync_files' pipes.
    sync_files: Vec<OwnedFd>,
    pub settle: Duration,
    /// Address of the next BO.
    pub wrong_iova: Option<Iova>,
    /// Whether mappings have one page only.
    pub short_mapping: bool,
    /// Handle of the next BO.
    pub same_handle: Option<Handle>,
}

/// The test's handle to the mock driver.
#[derive(Clone, Debug, Default)]
pub struct Mock(Arc<Mutex<State>>);

impl Mock {
    pub fn new(fates: &[Fate]) -> Self {
        let mock = Self::default();
        mock.lock().fates = fates.iter().copied().collect();
        mock
    }

    pub fn device(&self) -> Device {
        // SAFETY: nobody else calls the file.
        #[allow(unsafe_code)]
        unsafe {
            Device::new(Arc::new(MockFile(self.clone())))
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Makes one call fail: number `index`, counted from now.
    pub fn fail_at(&self, index: usize) {
        let mut state = self.lock();
        state.fail_at = Some(state.calls + index);
    }

    /// Makes the device disappear: call number `index`, counted from now, fails, and so do
    /// all later calls.
    pub fn vanish_at(&self, index: usize) {
        let mut state = self.lock();
        state.vanish_at = Some(state.calls + index);
    }

    pub fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.lock().events)
    }

    /// Ends all hanging jobs.
    pub fn release(&self) {
        for job in self.lock().jobs.values() {
            job.lock().unwrap().is_active = false;
        }
    }

    /// Numbers of open handles and mappings.
    pub fn open_things(&self) -> (usize, usize) {
        let state = self.lock();
        let is_unmap = |event: &&Event| matches!(event, Event::Unmap(_));
        let is_create = |event: &&Event| matches!(event, Event::Create(_));
        let created = state.events.iter().filter(is_create).count();
        let unmapped = state.events.iter().filter(is_unmap).count();
        (state.bos.len(), created - unmapped)
    }

    /// Asserts that nothing is open, and that the file was closed last.
    pub fn assert_all_gone(&self, context: &str) {
        assert_eq!(self.open_things(), (0, 0), "{context}");
        let events = self.events();
        assert_eq!(events.last(), Some(&Event::CloseFile), "{context}");
        sharing::assert_closed(&std::mem::take(&mut self.lock().sync_files), context);
    }
}

#[derive(Debug)]
struct MockFile(Mock);

impl Mock {
    /// Counts a call, and fails it if the test chose it.
    fn enter(&self) -> Result<MutexGuard<'_, State>, Errno> {
        let mut state = self.lock();
        let index = state.calls;
        state.calls += 1;
        if state.fail_at == Some(index) {
            return Err(Errno::IO);
        }
        if state.vanish_at.is_some_and(|at| index >= at) {
            return Err(Errno::NODEV);
        }
        Ok(state)
    }
}

impl Drop for MockFile {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        // Each dma-buf must be closed by now.
        for dma_buf in std::mem::take(&mut state.dma_bufs) {
            dma_buf.assert_closed();
            state.events.push(Event::CloseDmaBuf);
        }
        state.events.push(Event::CloseFile);
    }
}

impl State {
    /// One more than the largest handle.
    fn next_handle(&self) -> Handle {
        let last = self.bos.keys().copied().map(u32::from).max();
        handle(last.unwrap_or(0) + 1)
    }

    fn create(&mut self, bo: &mut sys::CreateBo) {
        let next = self.next_handle();
        let handle = self.same_handle.take().unwrap_or(next);
        let iova = self.wrong_iova.take().unwrap_or(Iova(self.next_iova));
        let mapped = if self.short_mapping { 4096 } else { bo.size };
        self.next_iova += bo.size.next_multiple_of(PAGE_BYTES as u32);
        let pages = Arc::new(Pages::new(mapped as usize));
        self.bos.insert(handle, pages);
        self.iovas.insert(handle, iova);
        self.events.push(Event::Create(handle));
        (bo.handle, bo.dma_address) = (handle.into(), iova.0.into());
    }

    fn prep(&mut self, handle: Handle, until: Deadline) -> Result<(), Errno> {
        self.events.push(Event::Prep(handle));
        let Some(job) = self.jobs.get(&handle) else {
            return Ok(());
        };
        let mut job = job.lock().unwrap();
        // A hanging job is the last of the fates. Any other job ends when somebody waits.
        let hangs = self.fates.front() == Some(&Fate::Hangs);
        if job.is_active && (hangs || until == Deadline::NOW) {
            return Err(Errno::BUSY);
        }
        job.is_active = false;
        Ok(())
    }

    fn close(&mut self, handle: Handle) {
        self.bos.remove(&handle);
        let dma_bufs = self.dma_bufs.iter_mut();
        dma_bufs.for_each(|dma_buf| dma_buf.forget(handle));
        self.events.push(Event::Close(handle));
    }

    fn submit(&mut self, jobs: &[ClientJob]) {
        self.events.push(Event::Submit { jobs: jobs.len() });
        for job in jobs {
            let hangs = self.fates.front() == Some(&Fate::Hangs);
            self.run(job);
            if hangs {
                self.fates.push_front(Fate::Hangs);
            }
        }
    }

    fn run(&mut self, job: &ClientJob) {
        let writes: Vec<_> = job.writes.iter().map(|&bo| handle(bo)).collect();
        let fate = self.fates.pop_front().unwrap_or(Fate::RunsAtOnce);
        let page = writes.last().unwrap();
        let last = job.tasks.last().map(|task| Iova(task.regcmd));
        assert_eq!(last, Some(self.iovas[page]), "a job ends with its witness");
        self.submissions += 1;
        let is_over = [
            Fate::RunsAtOnce,
            Fate::IsKilledUnseen,
            Fate::IsDropped,
            Fate::IsDroppedUnseen,
        ];
        let was_killed = match fate {
            Fate::Runs | Fate::RunsAtOnce | Fate::IsDropped | Fate::Hangs => Some(false),
            Fate::IsKilledForSure => Some(true),
            _ => None,
        };
        let state = Arc::new(Mutex::new(MockJob {
            is_active: !is_over.contains(&fate),
            was_killed,
        }));
        for &handle in &writes {
            self.jobs.insert(handle, Arc::clone(&state));
        }
        let runs = matches!(fate, Fate::Runs | Fate::RunsAtOnce | Fate::RunsLate);
        if runs || fate == Fate::IsKilledAtItsEnd {
            self.bos[&writes[0]].fill_from(0, RESULT);
        }
        if runs {
            // The last quarter of the page holds the witness's result.
            self.bos[page].fill_from(PAGE_BYTES / 4 * 3, RESULT);
        }
    }
}

fn handle(number: u32) -> Handle {
    rocket_uapi::handle(number).unwrap()
}

// SAFETY: handles count up, addresses do not overlap, and jobs write only within SUBMIT and
// PREP_BO.
unsafe impl FileOperations for MockFile {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: "mock".into(),
            driver: drm::Driver {
                version: (0, 0, 0),
                name: "rocket".into(),
                date: "0".into(),
                desc: "rocket DRM".into(),
            },
            is_model: true,
            cores: 1,
        }
    }

    unsafe fn ioctl(
        &self,
        request: u32,
        arg: &mut [u8],
        caller: &dyn Caller,
    ) -> Result<i32, Errno> {
        let entered = self.0.enter();
        if request == sys::GEM_CLOSE {
            let failed = entered.map(drop);
            // Close it even if the call "fails": a handle that cannot be closed is no leak
            // of the client.
            let bo: sys::GemClose = sys::structure(arg);
            self.0.lock().close(handle(bo.handle));
            return failed.map(|()| 0);
        }
        let mut state = entered?;
        match request {
            sys::CREATE_BO => {
                let mut bo = sys::structure(arg);
                state.create(&mut bo);
                arg.copy_from_slice(bo.as_bytes());
            }
            sys::PREP_BO => {
                let bo: sys::PrepBo = sys::structure(arg);
                state.prep(handle(bo.handle), Deadline::from_nanos(bo.timeout_ns))?;
            }
            sys::FINI_BO => {
                let bo: sys::FiniBo = sys::structure(arg);
                state.events.push(Event::Fini(handle(bo.handle)));
            }
            sys::SUBMIT => state.submit(&ClientJob::read_all(arg, caller).unwrap()),
            sys::PRIME_HANDLE_TO_FD => {
                let mut prime: sys::PrimeHandle = sys::structure(arg);
                state.exports += 1;
                let pages = &state.bos[&handle(prime.handle)];
                let (exported, dma_buf) = sharing::MockDmaBuf::new(pages);
                state.dma_bufs.push(exported);
                caller.install(dma_buf, true, &mut |number| {
                    prime.fd = number;
                    Ok(())
                })?;
                arg.copy_from_slice(prime.as_bytes());
            }
            sys::PRIME_FD_TO_HANDLE => {
                let mut prime: sys::PrimeHandle = sys::structure(arg);
                prime.handle = state.import(prime.fd)?.into();
                arg.copy_from_slice(prime.as_bytes());
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(0)
    }

    fn mmap(&self, _: &MapRequest) -> Result<Box<dyn MappedMemory>, Errno> {
        Err(Errno::NODEV)
    }

    fn map_bo(&self, bo: &sys::CreateBo, _: usize) -> Result<Box<dyn MappedMemory>, Errno> {
        let (mock, handle) = (self.0.clone(), handle(bo.handle));
        let pages = Arc::clone(&mock.lock().bos[&handle]);
        let unmapped = move || mock.lock().events.push(Event::Unmap(handle));
        Ok(Box::new(Mapping::new(pages, Box::new(unmapped))))
    }

    fn poll(&self) -> Result<i16, Errno> {
        Ok(0)
    }

    fn read(&self, _: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::AGAIN)
    }

    fn shared_files(&self) -> Arc<dyn SharedFileOperations> {
        Arc::new(self.0.clone())
    }

    fn was_accepted(&self, handle: u32) -> Result<bool, Errno> {
        is_busy(self, handle)
    }

    fn was_killed(&self, number: u32, _: Instant) -> Option<bool> {
        self.0.lock().jobs[&handle(number)]
            .lock()
            .unwrap()
            .was_killed
    }

    fn reopen(&self) -> Result<Arc<dyn FileOperations>, Error> {
        let entered = self.0.enter();
        drop(entered.map_err(|errno| Error::of("open", None, errno))?);
        Ok(Arc::new(Self(self.0.clone())))
    }

    fn settle(&self) -> Duration {
        self.0.lock().settle
    }
}

/// Runs `scenario`, then again with each of its calls failing in turn, and checks that
/// nothing is left behind. Returns the mock and the result of the first run.
pub fn fail_each_call(
    fates: &[Fate],
    scenario: fn(&Device) -> Result<(), Box<dyn std::error::Error>>,
) -> (Mock, Result<(), String>) {
    let run = |mock: &Mock| scenario(&mock.device()).map_err(|error| error.to_string());
    let first = Mock::new(fates);
    let result = run(&first);
    first.assert_all_gone("without a failure");
    let calls = first.lock().calls;
    assert!(calls > 30, "{calls} calls are too few to mean much");
    // An interpreter such as Miri is slow.
    for failing in (0..calls).step_by(if cfg!(miri) { 7 } else { 1 }) {
        let mock = Mock::new(fates);
        mock.fail_at(failing);
        let result = run(&mock);
        mock.assert_all_gone(&format!("{fates:?}, call {failing}: {result:?}"));
    }
    (first, result)
}

pub fn submit(job: Job, device: &Device) -> PendingJob {
    device.submit(vec![job]).unwrap().remove(0)
}

pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

const A: BufferId = BufferId(0);
const B: BufferId = BufferId(1);
const C: BufferId = BufferId(2);

/// Bytes of A, B and C of the matmul.
pub const A_BYTES: usize = 4 * 32;
pub const B_BYTES: usize = 32 * 32;
pub const C_BYTES: usize = 4 * 32 * 4;

/// The smallest INT8 matmul.
fn matmul(a: BufferRef) -> MatmulTask {
    MatmulTask {
        ty: TaskType::Int8ToInt32,
        m: 4,
        k: 32,
        n: 32,
        a,
        b: B.at(0),
        c: C.at(0),
    }
}

/// Cache of linked programs: linking takes many seconds in an interpreter such as Miri, and
/// most tests use the same addresses.
static LINKED: Mutex<Vec<(MatmulTask, Vec<Binding>, LinkedProgram)>> = Mutex::new(Vec::new());

/// Links a matmul with A at the given place.
fn link(a: BufferRef, buffers: &[(BufferId, Iova, usize)]) -> LinkedProgram {
    let mut linked = LINKED.lock().unwrap();
    let bound = buffers.iter().map(|&(id, iova, len)| Binding {
        id,
        iova,
        len: len as u32,
    });
    let bindings: Vec<_> = bound.collect();
    let task = matmul(a);
    let mut entries = linked.iter();
    if let Some(entry) = entries.find(|entry| entry.0 == task && entry.1 == bindings) {
        return entry.2.clone();
    }
    let unlinked = task.program(&ChipProfile::RK3588).unwrap();
    let program = unlinked.link(&bindings).unwrap();
    linked.push((task, bindings, program.clone()));
    program
}

pub fn alloc(device: &Device, bytes: usize) -> Result<Bo, Error> {
    device.alloc(ByteLen::new(bytes)?)
}

pub fn program(a: &Bo, b: &Bo, c: &Bo) -> LinkedProgram {
    let [a, b, c] = [a, b, c].map(|bo| (bo.iova(), bo.len()));
    program_at(a, b, c)
}

/// Like [`program`], by addresses and lengths.
pub fn program_at(a: (Iova, usize), b: (Iova, usize), c: (Iova, usize)) -> LinkedProgram {
    let bindings = [(A, a.0, a.1), (B, b.0, b.1), (C, c.0, c.1)];
    link(A.at(0), &bindings)
}

/// A job of one matmul with new buffers, of ones; its output is filled with 0x11 before.
pub fn job(device: &Device) -> Job {
    builder(device).unwrap().build().unwrap()
}

pub fn builder(device: &Device) -> Result<JobBuilder, Error> {
    Ok(writing(device, filled(device, C_BYTES, 0x11)?)?.0)
}

fn filled(device: &Device, len: usize, value: u8) -> Result<Bo, Error> {
    let mut bo = alloc(device, len)?;
    let mut bytes = bo.write(soon())?;
    bytes.fill(value);
    bytes.finish()?;
    Ok(bo)
}

pub fn job_into(device: &Device, c: Bo) -> Job {
    writing(device, c).unwrap().0.build().unwrap()
}

/// A builder of a job that multiplies matrices of ones into `c`, and its program.
pub fn writing(device: &Device, c: Bo) -> Result<(JobBuilder, ProgramBo), Error> {
    let a = filled(device, A_BYTES, 1)?;
    let b = filled(device, B_BYTES, 1)?;
    let programs = ProgramBo::new(device, &[program(&a, &b, &c)])?;
    let builder = Job::builder(device)
        .program(&programs)
        .reads_owned(a)
        .reads(&b.freeze())
        .writes(c);
    Ok((builder, programs))
}

/// A job that works in place: its input lies `offset` bytes into its output.
pub fn in_place_job(device: &Device, offset: u32) -> Job {
    let b = alloc(device, B_BYTES).unwrap();
    let c = filled(device, C_BYTES, 0x11).unwrap();
    let bindings = [(B, b.iova(), b.len()), (C, c.iova(), c.len())];
    let program = link(C.at(offset), &bindings);
    Job::builder(device)
        .program(&ProgramBo::new(device, &[program]).unwrap())
        .reads(&b.freeze())
        .writes(c)
        .build()
        .unwrap()
}

/// The first and the last byte of the written part of an output.
pub fn ends(bo: &Bo) -> (u8, u8) {
    let bytes = bo.read(soon()).unwrap();
    (bytes[0], bytes[C_BYTES - 1])
}
