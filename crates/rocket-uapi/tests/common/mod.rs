// SPDX-License-Identifier: MIT OR Apache-2.0
//! A backend of a few lines: it counts what is open, fails where it is told
//! to, and gives jobs the fate that a test wants.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used)]

mod memory;
mod sharing;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rknpu_regcmd::{
    Binding, BufferId, BufferRef, ChipProfile, LinkedProgram, MatmulTask, MatmulType,
};
use rocket_uapi::{
    Backend, Bo, ByteLen, Call, Deadline, Device, DeviceInfo, Errno, Error, Fence, FenceStatus,
    Handle, Iova, Job, JobBuilder, ProgramBo, RawBo, RawDevice, RawJob, SharedMemory, Sharing,
};

use memory::{Mapping, Pages, SharedPages};

/// What a job that ran writes over its first output.
pub const RESULT: u8 = 0x77;

/// What becomes of a submitted job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs, and its fence is still active right after SUBMIT.
    Runs,
    /// It has run by the time that SUBMIT returns.
    RunsAtOnce,
    /// As that, but the backend knows that its fence is a new one.
    RunsAtOnceAndIsNew,
    /// It has run by then, and its result is what the output held at the first
    /// submission.
    RunsAtOnceAndLeavesTheFirstCanary,
    /// It is killed; the fence tells.
    IsKilled,
    /// It is killed before anybody looks at its fence.
    IsKilledUnseen,
    /// It is dropped without a word.
    IsDropped,
    /// It does not end until [`Mock::release`].
    Hangs,
}

/// What the backend was asked, in order.
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

#[derive(Debug, Default)]
struct State {
    calls: usize,
    fail_at: Option<usize>,
    vanish_at: Option<usize>,
    events: Vec<Event>,
    bos: BTreeMap<Handle, Arc<Pages>>,
    fences_open: usize,
    next_iova: u32,
    fates: VecDeque<Fate>,
    /// Job that last wrote the BO.
    jobs: BTreeMap<Handle, Arc<Mutex<FenceStatus>>>,
    /// Whether the last job was [`Fate::RunsAtOnceAndIsNew`].
    is_new: bool,
    first_output: Option<Vec<u8>>,
    /// The first written BO as each submission found it.
    seen: Vec<Vec<u8>>,
    dma_bufs: Vec<sharing::MockDmaBuf>,
    /// The other ends of sync_files.
    sync_files: Vec<OwnedFd>,
    settle: Duration,
    wrong_iova: Option<Iova>,
    short_mapping: bool,
    same_handle: Option<Handle>,
}

/// The test's hand on the backend.
#[derive(Clone, Debug, Default)]
pub struct Mock(Arc<Mutex<State>>);

impl Mock {
    pub fn new(fates: &[Fate]) -> Self {
        let mock = Self::default();
        mock.lock().fates = fates.iter().copied().collect();
        mock
    }

    pub fn device(&self) -> Device {
        Device::from_backend(Arc::new(MockFile(self.clone())))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Lets call number `index` from now on fail, once.
    pub fn fail_at(&self, index: usize) {
        let mut state = self.lock();
        state.fail_at = Some(state.calls + index);
    }

    /// Lets the device disappear: call number `index` from now on fails, and
    /// all after it.
    pub fn vanish_at(&self, index: usize) {
        let mut state = self.lock();
        state.vanish_at = Some(state.calls + index);
    }

    pub fn settle_for(&self, settle: Duration) {
        self.lock().settle = settle;
    }

    pub fn place_next_at(&self, iova: Iova) {
        self.lock().wrong_iova = Some(iova);
    }

    pub fn shorten_mappings(&self) {
        self.lock().short_mapping = true;
    }

    pub fn reuse(&self, handle: Handle) {
        self.lock().same_handle = Some(handle);
    }

    pub fn calls(&self) -> usize {
        self.lock().calls
    }

    pub fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.lock().events)
    }

    pub fn submissions(&self) -> usize {
        self.lock().seen.len()
    }

    /// The first output as submission `index` found it.
    pub fn seen(&self, index: usize) -> Vec<u8> {
        self.lock().seen[index].clone()
    }

    /// Ends jobs that hang.
    pub fn release(&self) {
        for fence in self.lock().jobs.values() {
            *fence.lock().unwrap() = FenceStatus::Signaled;
        }
    }

    /// Handles, mappings and fences that are open.
    pub fn open_things(&self) -> (usize, usize, usize) {
        let state = self.lock();
        let is_unmap = |event: &&Event| matches!(event, Event::Unmap(_));
        let is_create = |event: &&Event| matches!(event, Event::Create(_));
        let created = state.events.iter().filter(is_create).count();
        let unmapped = state.events.iter().filter(is_unmap).count();
        (state.bos.len(), created - unmapped, state.fences_open)
    }

    /// Nothing is open, and the file was closed last.
    pub fn assert_all_gone(&self, context: &str) {
        assert_eq!(self.open_things(), (0, 0, 0), "{context}");
        let events = self.events();
        assert_eq!(events.last(), Some(&Event::CloseFile), "{context}");
        sharing::assert_closed(&std::mem::take(&mut self.lock().sync_files), context);
    }
}

/// One open file of the mock.
#[derive(Debug)]
struct MockFile(Mock);

impl Mock {
    /// Counts a call, and fails if it is the one.
    fn enter(&self, call: Call, handle: Option<Handle>) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.lock();
        let index = state.calls;
        state.calls += 1;
        if state.fail_at == Some(index) {
            return Err(Error::of(call, handle, Errno::IO));
        }
        if state.vanish_at.is_some_and(|at| index >= at) {
            return Err(Error::of(call, handle, Errno::NODEV));
        }
        Ok(state)
    }
}

impl MockFile {
    fn enter(&self, call: Call, handle: Option<Handle>) -> Result<MutexGuard<'_, State>, Error> {
        self.0.enter(call, handle)
    }
}

impl Drop for MockFile {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        // The other end of each dma-buf is closed by now: reading finds the
        // end of the file instead of nothing yet.
        for dma_buf in std::mem::take(&mut state.dma_bufs) {
            dma_buf.assert_closed();
            state.events.push(Event::CloseDmaBuf);
        }
        state.events.push(Event::CloseFile);
    }
}

#[derive(Debug)]
struct MockFence {
    status: Arc<Mutex<FenceStatus>>,
    is_new: bool,
    mock: Mock,
}

impl Fence for MockFence {
    fn status(&self) -> Result<FenceStatus, Error> {
        drop(self.mock.enter(Call::SyncFileInfo, None)?);
        Ok(*self.status.lock().unwrap())
    }

    fn is_new(&self) -> bool {
        self.is_new
    }

    fn sync_file(&self) -> Result<OwnedFd, Error> {
        self.mock.new_sync_file(Call::ExportSyncFile)
    }
}

impl Drop for MockFence {
    fn drop(&mut self) {
        self.mock.lock().fences_open -= 1;
    }
}

impl State {
    fn run(&mut self, job: &RawJob<'_>) {
        let fate = self.fates.pop_front().unwrap_or(Fate::RunsAtOnce);
        let output = Arc::clone(&self.bos[&job.writes[0]]);
        let found = output.to_vec();
        self.seen.push(found.clone());
        let first = self.first_output.get_or_insert(found).clone();
        let status = match fate {
            Fate::Runs | Fate::Hangs | Fate::IsKilled => FenceStatus::Active,
            _ => FenceStatus::Signaled,
        };
        let fence = Arc::new(Mutex::new(status));
        for &handle in job.writes {
            self.jobs.insert(handle, Arc::clone(&fence));
        }
        self.is_new = fate == Fate::RunsAtOnceAndIsNew;
        match fate {
            Fate::Runs | Fate::RunsAtOnce | Fate::RunsAtOnceAndIsNew => output.fill(RESULT),
            Fate::RunsAtOnceAndLeavesTheFirstCanary => output.copy_from(&first),
            Fate::IsKilled => {
                // Its end comes with the first wait.
                *fence.lock().unwrap() = FenceStatus::Failed(Errno::CANCELED);
            }
            Fate::IsKilledUnseen | Fate::IsDropped | Fate::Hangs => {}
        }
    }
}

// SAFETY: handles count up, addresses follow each other, and no job writes
// anything but within `submit` and `prep_bo`.
unsafe impl Backend for MockFile {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: "mock".into(),
            driver: "rocket".into(),
            version: (0, 0, 0),
            description: String::new(),
            is_model: true,
            cores: 1,
        }
    }

    fn create_bo(&self, len: ByteLen) -> Result<RawBo, Error> {
        let mut state = self.enter(Call::CreateBo, None)?;
        let number = state.bos.keys().last().map_or(1, |last| last.get() + 1);
        let handle = match state.same_handle.take() {
            Some(handle) => handle,
            None => Handle::new(number).unwrap(),
        };
        let iova = state.wrong_iova.take().unwrap_or(Iova(state.next_iova));
        let mapped = if state.short_mapping { 4096 } else { len.get() };
        state.next_iova += len.page_rounded().get() as u32;
        let pages = Arc::new(Pages::new(mapped));
        state.bos.insert(handle, Arc::clone(&pages));
        state.events.push(Event::Create(handle));
        let mock = self.0.clone();
        let unmapped = move || mock.lock().events.push(Event::Unmap(handle));
        Ok(RawBo {
            handle,
            iova,
            memory: Box::new(Mapping::new(pages, Box::new(unmapped))),
        })
    }

    fn close_bo(&self, handle: Handle) -> Result<(), Error> {
        let entered = self.enter(Call::GemClose, Some(handle));
        let failed = entered.as_ref().err().cloned();
        drop(entered);
        // Also where it "fails": a handle that cannot be closed is no leak of
        // the client's.
        let mut state = self.0.lock();
        state.bos.remove(&handle);
        state
            .dma_bufs
            .iter_mut()
            .for_each(|dma_buf| dma_buf.forget(handle));
        state.events.push(Event::Close(handle));
        failed.map_or(Ok(()), Err)
    }

    fn prep_bo(&self, handle: Handle, _: Deadline) -> Result<(), Error> {
        let mut state = self.enter(Call::PrepBo, Some(handle))?;
        state.events.push(Event::Prep(handle));
        let Some(fence) = state.jobs.get(&handle).cloned() else {
            return Ok(());
        };
        drop(state);
        let mut status = fence.lock().unwrap();
        if *status == FenceStatus::Active {
            // A job that hangs is the last of the fates, any other ends now.
            if self.0.lock().fates.front() == Some(&Fate::Hangs) {
                return Err(Error::TimedOut { handle });
            }
            *status = FenceStatus::Signaled;
        }
        Ok(())
    }

    fn fini_bo(&self, handle: Handle) -> Result<(), Error> {
        let mut state = self.enter(Call::FiniBo, Some(handle))?;
        state.events.push(Event::Fini(handle));
        Ok(())
    }

    unsafe fn submit(&self, jobs: &[RawJob<'_>]) -> Result<(), Error> {
        let mut state = self.enter(Call::Submit, None)?;
        state.events.push(Event::Submit { jobs: jobs.len() });
        for job in jobs {
            let hangs = state.fates.front() == Some(&Fate::Hangs);
            state.run(job);
            if hangs {
                state.fates.push_front(Fate::Hangs);
            }
        }
        Ok(())
    }

    fn export_bo(&self, handle: Handle) -> Result<OwnedFd, Error> {
        let mut state = self.enter(Call::PrimeExport, Some(handle))?;
        let (exported, dma_buf) = sharing::MockDmaBuf::new(&state.bos[&handle]);
        state.dma_bufs.push(exported);
        Ok(dma_buf)
    }

    fn import_bo(&self, dma_buf: BorrowedFd<'_>) -> Result<Handle, Error> {
        let mut state = self.enter(Call::PrimeImport, None)?;
        state.import(dma_buf)
    }

    fn map_dma_buf(&self, dma_buf: BorrowedFd<'_>) -> Result<Box<dyn SharedMemory>, Error> {
        let mut state = self.enter(Call::Mmap, None)?;
        let pages = Arc::clone(&state.exported(dma_buf)?.pages);
        Ok(Box::new(SharedPages(pages)))
    }

    fn sharing(&self) -> Option<Arc<dyn Sharing>> {
        Some(Arc::new(self.0.clone()))
    }

    fn write_fence(&self, handle: Handle) -> Result<Box<dyn Fence>, Error> {
        let mut state = self.enter(Call::ExportSyncFile, Some(handle))?;
        state.fences_open += 1;
        let none = || Arc::new(Mutex::new(FenceStatus::Signaled));
        let status = state.jobs.get(&handle).cloned().unwrap_or_else(none);
        let is_new = state.is_new;
        Ok(Box::new(MockFence {
            status,
            is_new,
            mock: self.0.clone(),
        }))
    }

    fn reopen(&self) -> Result<Arc<dyn Backend>, Error> {
        drop(self.enter(Call::Open, None)?);
        Ok(Arc::new(Self(self.0.clone())))
    }

    fn settle(&self) -> Duration {
        self.0.lock().settle
    }

    fn raw(&self) -> Option<&dyn RawDevice> {
        None
    }
}

pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

const A: BufferId = BufferId(0);
const B: BufferId = BufferId(1);
const C: BufferId = BufferId(2);

/// Bytes of the product's A, B and C.
pub const A_BYTES: usize = 4 * 32;
pub const B_BYTES: usize = 32 * 32;
pub const C_BYTES: usize = 4 * 32 * 4;

/// The smallest INT8 product, A at the given place.
fn product(a: BufferRef) -> MatmulTask {
    MatmulTask {
        ty: MatmulType::Int8ToInt32,
        m: 4,
        k: 32,
        n: 32,
        a,
        b: B.at(0),
        c: C.at(0),
    }
}

type Bindings = Vec<(BufferId, Iova, usize)>;

/// Linking takes many seconds in an interpreter such as Miri, and most tests
/// have the same addresses.
static LINKED: Mutex<Vec<(MatmulTask, Bindings, LinkedProgram)>> = Mutex::new(Vec::new());

fn link(task: &MatmulTask, bindings: &[(BufferId, Iova, usize)]) -> LinkedProgram {
    let mut linked = LINKED.lock().unwrap();
    let known =
        |entry: &&(MatmulTask, Bindings, LinkedProgram)| entry.0 == *task && entry.1 == bindings;
    if let Some(entry) = linked.iter().find(known) {
        return entry.2.clone();
    }
    let bound: Vec<_> = bindings
        .iter()
        .map(|&(id, iova, len)| Binding {
            id,
            iova,
            len: len as u32,
        })
        .collect();
    let unlinked = task.program(&ChipProfile::RK3588).unwrap();
    let program = unlinked.link(&bound).unwrap();
    linked.push((*task, bindings.to_vec(), program.clone()));
    program
}

pub fn alloc(device: &Device, bytes: usize) -> Result<Bo, Error> {
    device.alloc(ByteLen::new(bytes)?)
}

/// A program that reads `a` and `b` and writes `c`.
pub fn program(a: &Bo, b: (Iova, usize), c: &Bo) -> LinkedProgram {
    program_at((a.iova(), a.len()), b, (c.iova(), c.len()))
}

/// The same by addresses and lengths.
pub fn program_at(a: (Iova, usize), b: (Iova, usize), c: (Iova, usize)) -> LinkedProgram {
    let bindings = [(A, a.0, a.1), (B, b.0, b.1), (C, c.0, c.1)];
    link(&product(A.at(0)), &bindings)
}

/// A program whose A lies `offset` bytes into its own output.
pub fn in_place_program(offset: u32, b: (Iova, usize), c: &Bo) -> LinkedProgram {
    let bindings = [(B, b.0, b.1), (C, c.iova(), c.len())];
    link(&product(C.at(offset)), &bindings)
}

/// A job from one product with buffers of its own; the first written byte of
/// its output is `fill`.
pub fn job(device: &Device) -> Job {
    builder(device).unwrap().build().unwrap()
}

/// The same with an output buffer so large that a job that fills it is long.
pub fn long_job(device: &Device) -> Job {
    builder_into(device, (64 << 10) + 1)
        .unwrap()
        .build()
        .unwrap()
}

pub fn builder(device: &Device) -> Result<JobBuilder, Error> {
    builder_into(device, C_BYTES)
}

fn builder_into(device: &Device, output_bytes: usize) -> Result<JobBuilder, Error> {
    let mut c = alloc(device, output_bytes)?;
    let mut bytes = c.write(soon())?;
    bytes.fill(0x11);
    bytes.finish()?;
    writing(device, c)
}

/// A job that writes `c`.
pub fn job_into(device: &Device, c: Bo) -> Job {
    writing(device, c).unwrap().build().unwrap()
}

fn writing(device: &Device, c: Bo) -> Result<JobBuilder, Error> {
    let a = alloc(device, A_BYTES)?;
    let b = alloc(device, B_BYTES)?;
    let programs = ProgramBo::new(device, &[program(&a, (b.iova(), b.len()), &c)])?;
    Ok(Job::builder(device)
        .program(&programs)
        .reads_owned(a)
        .reads(&b.freeze())
        .writes(c))
}

/// A job that works in place, its input `offset` bytes into its output.
pub fn in_place_job(device: &Device, offset: u32) -> Job {
    let b = alloc(device, B_BYTES).unwrap();
    let mut c = alloc(device, C_BYTES).unwrap();
    c.write(soon()).unwrap().fill(0x11);
    let program = in_place_program(offset, (b.iova(), b.len()), &c);
    Job::builder(device)
        .program(&ProgramBo::new(device, &[program]).unwrap())
        .reads(&b.freeze())
        .writes(c)
        .build()
        .unwrap()
}

/// The first byte and the last of the written part of an output.
pub fn ends(bo: &Bo) -> (u8, u8) {
    let bytes = bo.read(soon()).unwrap();
    (bytes[0], bytes[C_BYTES - 1])
}
