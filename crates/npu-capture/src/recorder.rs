// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recording: jobs as they are handed over, into a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rknpu_regcmd::{ChipProfile, Iova};
use rocket_uapi::{DeviceInfo, RawTask};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::capture::{Outcome, Role};
use crate::delta::{BoBytes, Keep, Stored, changes};
use crate::error::RecordError;
use crate::fields::push_text;
use crate::format::{
    DEVICE_IS_MODEL, DeviceRecord, DoneRecord, FLAG_ZERO_DATA, IOVA_END, JobRecord, NO_OBJECT,
    OBJECT_HAS_ADDRESS, ObjectRecord, PAGE, SectionKind, TASKS_MAX, TaskRecord, USES_MAX,
    UseRecord,
};
use crate::outcome;
use crate::programs::{Programs, words_range};
use crate::writer::Writer;

/// What can be chosen about a recording.
#[derive(Clone, Debug, Default)]
pub struct RecorderOptions {
    /// Leaves out all contents but command words.
    pub zero_data: bool,
    /// Has the file on the disk before each job runs, so that it survives a
    /// machine that the job takes down. Slow.
    pub durable: bool,
    /// Texts to put into the file: names and values.
    pub notes: Vec<(String, String)>,
}

/// A buffer object as a recorder sees it.
#[derive(Clone, Copy)]
pub struct BoView<'a> {
    /// Its GEM handle.
    pub handle: u32,
    /// Where the NPU sees it; `None` for one that was imported, whose contents
    /// are not recorded.
    pub iova: Option<Iova>,
    /// Its length in bytes, whole pages.
    pub len: u64,
    /// Its bytes.
    pub bytes: &'a dyn BoBytes,
}

/// A job as it is handed over.
#[derive(Clone, Copy)]
pub struct JobView<'a> {
    /// Its programs.
    pub tasks: &'a [RawTask],
    /// The handles that it only reads, as they were given.
    pub reads: &'a [u32],
    /// The handles that it writes, as they were given.
    pub writes: &'a [u32],
    /// All buffer objects of its file. Those are recorded that the job names
    /// or its programs reach.
    pub bos: &'a [BoView<'a>],
}

/// Records jobs into a file. Clones record into the same one.
///
/// Nothing here fails while a program runs: the first error ends the
/// recording, and [`Recorder::finish`] tells it.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Inner>);

/// What was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Jobs.
    pub jobs: u32,
    /// Buffer objects.
    pub objects: u32,
    /// Length of the file.
    pub bytes: u64,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// Signalled when a job ends.
    ended: Condvar,
    begun: Instant,
    options: RecorderOptions,
}

#[derive(Debug)]
struct State {
    /// None after the end or an error.
    writer: Option<Writer<BufWriter<File>>>,
    error: Option<RecordError>,
    has_device: bool,
    running: bool,
    jobs: u32,
    /// The object that a handle of a file stands for.
    current: BTreeMap<(u32, u32), u32>,
    objects: Vec<Known>,
}

/// An object that is in the file.
#[derive(Debug)]
struct Known {
    iova: Option<Iova>,
    len: u64,
    keep: Keep,
    stored: Stored,
}

impl Recorder {
    /// Begins a file; one that is there is replaced.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(path: &Path, options: RecorderOptions) -> Result<Self, RecordError> {
        let flags = if options.zero_data { FLAG_ZERO_DATA } else { 0 };
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_ns = since_1970.map_or(0, |time| nanoseconds(time.as_nanos()));
        let out = BufWriter::new(File::create(path)?);
        let mut writer = Writer::new(out, flags, unix_ns)?;
        if !options.notes.is_empty() {
            let mut payload = U32::new(options.notes.len() as u32).as_bytes().to_vec();
            for (name, value) in &options.notes {
                push_text(&mut payload, name);
                push_text(&mut payload, value);
            }
            writer.section(SectionKind::NOTES, &payload)?;
        }
        Ok(Self(Arc::new(Inner {
            state: Mutex::new(State {
                writer: Some(writer),
                error: None,
                has_device: false,
                running: false,
                jobs: 0,
                current: BTreeMap::new(),
                objects: Vec::new(),
            }),
            ended: Condvar::new(),
            begun: Instant::now(),
            options,
        })))
    }

    /// Records which device it is. Only the first call counts; it must come
    /// before the first job.
    pub fn device(&self, info: &DeviceInfo) {
        let mut state = self.0.lock();
        if !std::mem::replace(&mut state.has_device, true) {
            state.write(SectionKind::DEVICE, &device_payload(info));
        }
    }

    /// Records a job of the open file `file` and what it is about to find.
    /// Waits until the job before it, of any file, has ended.
    pub fn job(&self, file: u32, job: &JobView<'_>) -> JobToken {
        let mut state = self.0.lock();
        while state.running {
            let woken = self.0.ended.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state.running = true;
        let started_ns = self.0.now();
        let recorded = state.begin(file, job, started_ns, &self.0.options);
        let objects = state.keep_going(recorded);
        JobToken {
            recorder: self.clone(),
            job: state.jobs,
            file,
            objects,
            ended: false,
        }
    }

    /// Writes the end of the file. Jobs that still run have no outcome in it.
    ///
    /// # Errors
    /// The first thing that went wrong since recording began.
    pub fn finish(&self) -> Result<Summary, RecordError> {
        let mut state = self.0.lock();
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        let mut summary = Summary {
            jobs: state.jobs,
            objects: state.objects.len() as u32,
            bytes: 0,
        };
        if let Some(writer) = state.writer.take() {
            summary.bytes = writer.finish()?.get_ref().metadata()?.len();
        }
        Ok(summary)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        nanoseconds(self.begun.elapsed().as_nanos())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = state.writer.take()
            && let Err(error) = writer.finish()
        {
            tracing::error!(%error, "the capture has no end");
        }
    }
}

/// A job that runs. Dropping it records that nobody knows how it ended.
#[must_use = "dropping it records that nobody knows how the job ended"]
#[derive(Debug)]
pub struct JobToken {
    recorder: Recorder,
    job: u32,
    file: u32,
    objects: Vec<u32>,
    ended: bool,
}

impl JobToken {
    /// The handles of the objects whose contents are recorded.
    #[must_use]
    pub fn handles(&self) -> BTreeSet<u32> {
        let state = self.recorder.0.lock();
        let ours = state.current.range((self.file, 0)..=(self.file, u32::MAX));
        ours.filter(|(_, object)| self.objects.contains(object))
            .map(|(&(_, handle), _)| handle)
            .collect()
    }

    /// Records the end of the job, and what changed in those of its objects
    /// that are in `bos`.
    pub fn finish(mut self, outcome: Outcome, bos: &[BoView<'_>]) {
        self.end(outcome, bos);
    }

    fn end(&mut self, outcome: Outcome, bos: &[BoView<'_>]) {
        self.ended = true;
        let ended_ns = self.recorder.0.now();
        let mut state = self.recorder.0.lock();
        let recorded = state.end(self, outcome, ended_ns, bos);
        state.keep_going(recorded);
        state.running = false;
        drop(state);
        self.recorder.0.ended.notify_one();
    }
}

impl Drop for JobToken {
    fn drop(&mut self) {
        if !self.ended {
            self.end(Outcome::Unknown, &[]);
        }
    }
}

impl State {
    /// Notes an error, which ends the recording.
    fn keep_going<T: Default>(&mut self, result: Result<T, RecordError>) -> T {
        result.unwrap_or_else(|error| {
            tracing::error!(%error, "recording has ended");
            self.writer = None;
            self.error.get_or_insert(error);
            T::default()
        })
    }

    fn write(&mut self, kind: SectionKind, payload: &[u8]) {
        let written = match &mut self.writer {
            Some(writer) => writer.section(kind, payload),
            None => Ok(()),
        };
        self.keep_going(written);
    }

    /// Writes what the job finds, and the job; the objects whose contents are
    /// recorded.
    fn begin(
        &mut self,
        file: u32,
        job: &JobView<'_>,
        started_ns: u64,
        options: &RecorderOptions,
    ) -> Result<Vec<u32>, RecordError> {
        if self.writer.is_none() {
            return Ok(Vec::new());
        }
        let reached = reached(job);
        let mut objects = Vec::new();
        for bo in job.bos {
            let named = job.reads.contains(&bo.handle) || job.writes.contains(&bo.handle);
            if named || reached.contains(&bo.handle) {
                objects.push(self.object(file, bo, options.zero_data)?);
                self.keep_words(file, bo, job.tasks);
                self.contents(file, bo)?;
            }
        }
        self.job(file, job, &reached, started_ns)?;
        if let Some(writer) = &mut self.writer {
            let out = writer.flush()?;
            if options.durable {
                out.get_ref().sync_data()?;
            }
        }
        Ok(objects)
    }

    /// The number of the object behind `bo`; new ones are written.
    fn object(&mut self, file: u32, bo: &BoView<'_>, zero: bool) -> Result<u32, RecordError> {
        if let Some(&object) = self.current.get(&(file, bo.handle)) {
            let known = &self.objects[object as usize];
            if known.iova == bo.iova && (known.len == bo.len || bo.iova.is_none()) {
                return Ok(object);
            }
        }
        let len = bo.iova.map_or(0, |_| bo.len);
        let iova = bo.iova.unwrap_or_default();
        let start = u64::from(iova.0);
        if !len.is_multiple_of(PAGE)
            || !start.is_multiple_of(PAGE)
            || len > IOVA_END - start
            || (len == 0) == bo.iova.is_some()
        {
            let handle = bo.handle;
            return Err(RecordError::Object { handle });
        }
        let object = self.objects.len() as u32;
        let flags = bo.iova.map_or(0, |_| OBJECT_HAS_ADDRESS);
        let record = ObjectRecord {
            object: object.into(),
            file: file.into(),
            handle: bo.handle.into(),
            iova: iova.0.into(),
            bytes: len.into(),
            flags: flags.into(),
            reserved: 0.into(),
        };
        self.section(SectionKind::OBJECT, record.as_bytes())?;
        self.objects.push(Known {
            iova: bo.iova,
            len,
            keep: if zero {
                Keep::Only(BTreeMap::new())
            } else {
                Keep::All
            },
            stored: Stored::new(len),
        });
        self.current.insert((file, bo.handle), object);
        Ok(object)
    }

    fn section(&mut self, kind: SectionKind, payload: &[u8]) -> Result<(), RecordError> {
        match &mut self.writer {
            Some(writer) => writer.section(kind, payload),
            None => Ok(()),
        }
    }

    fn known(&mut self, file: u32, handle: u32) -> Option<(u32, &mut Known)> {
        let object = *self.current.get(&(file, handle))?;
        Some((object, &mut self.objects[object as usize]))
    }

    /// Lets the words of `tasks` that are in `bo` be stored, whatever else is
    /// left out.
    fn keep_words(&mut self, file: u32, bo: &BoView<'_>, tasks: &[RawTask]) {
        let Some((_, known)) = self.known(file, bo.handle) else {
            return;
        };
        let Some(iova) = known.iova else { return };
        let start = u64::from(iova.0);
        let len = known.len;
        for task in tasks {
            let words = words_range(task);
            if words.start >= start && words.end <= start + len && !words.is_empty() {
                known.keep.add(words.start - start..words.end - start);
            }
        }
    }

    /// Writes the pages of `bo` that changed.
    fn contents(&mut self, file: u32, bo: &BoView<'_>) -> Result<(), RecordError> {
        let Self {
            writer: Some(writer),
            current,
            objects,
            ..
        } = self
        else {
            return Ok(());
        };
        let Some(&object) = current.get(&(file, bo.handle)) else {
            return Ok(());
        };
        let known = &mut objects[object as usize];
        if known.iova.is_none() {
            return Ok(());
        }
        let mut emit = |payload: &[u8]| writer.section(SectionKind::PAGES, payload);
        changes(object, bo.bytes, &known.keep, &mut known.stored, &mut emit)
    }

    fn job(
        &mut self,
        file: u32,
        job: &JobView<'_>,
        reached: &BTreeSet<u32>,
        started_ns: u64,
    ) -> Result<(), RecordError> {
        let mut uses = Vec::new();
        let mut push = |handle: u32, role: Role| {
            let there = job.bos.iter().any(|bo| bo.handle == handle);
            let object = self.current.get(&(file, handle)).copied();
            let object = object.filter(|_| there).unwrap_or(NO_OBJECT);
            uses.push(UseRecord {
                handle: handle.into(),
                object: object.into(),
                role: (role as u32).into(),
            });
        };
        job.reads.iter().for_each(|&handle| push(handle, Role::In));
        job.writes
            .iter()
            .for_each(|&handle| push(handle, Role::Out));
        for &handle in reached {
            if !job.reads.contains(&handle) && !job.writes.contains(&handle) {
                push(handle, Role::Reached);
            }
        }
        if job.tasks.len() > TASKS_MAX as usize || uses.len() > USES_MAX as usize {
            let what = "a job has too many programs or objects";
            return Err(RecordError::Full { what });
        }
        let record = JobRecord {
            job: self.jobs.into(),
            file: file.into(),
            started_ns: started_ns.into(),
            tasks: (job.tasks.len() as u32).into(),
            bos: (uses.len() as u32).into(),
        };
        let tasks = job.tasks.iter().map(|task| TaskRecord {
            regcmd: task.regcmd.0.into(),
            words: task.words.into(),
        });
        let tasks: Vec<_> = tasks.collect();
        let mut payload = record.as_bytes().to_vec();
        payload.extend_from_slice(tasks.as_bytes());
        payload.extend_from_slice(uses.as_bytes());
        self.section(SectionKind::JOB, &payload)
    }

    fn end(
        &mut self,
        token: &JobToken,
        outcome: Outcome,
        ended_ns: u64,
        bos: &[BoView<'_>],
    ) -> Result<(), RecordError> {
        if self.writer.is_none() {
            return Ok(());
        }
        for bo in bos {
            let known = self.known(token.file, bo.handle);
            // The handle may have been closed and given again meanwhile.
            let same = known.is_some_and(|(object, known)| {
                token.objects.contains(&object) && known.iova == bo.iova && known.len == bo.len
            });
            if same {
                self.contents(token.file, bo)?;
            }
        }
        let (code, errno) = outcome::encode(outcome);
        let record = DoneRecord {
            job: token.job.into(),
            outcome: code.into(),
            errno: errno.into(),
            reserved: 0.into(),
            ended_ns: ended_ns.into(),
        };
        self.section(SectionKind::DONE, record.as_bytes())?;
        self.jobs += 1;
        Ok(())
    }
}

/// Handles of the objects that hold the programs or that these can touch: all,
/// where that cannot be told.
fn reached(job: &JobView<'_>) -> BTreeSet<u32> {
    let inside = |start: u64, end: u64| {
        job.bos.iter().filter(move |bo| {
            let first = bo.iova.map(|iova| u64::from(iova.0));
            first.is_some_and(|first| start < first + bo.len && first < end)
        })
    };
    let read = |iova: u64, into: &mut [u8]| {
        let end = iova + into.len() as u64;
        let holder = inside(iova, end).find(|bo| {
            let first = bo.iova.map_or(0, |first| u64::from(first.0));
            first <= iova && end <= first + bo.len
        });
        let Some(bo) = holder else { return false };
        let first = bo.iova.map_or(0, |first| u64::from(first.0));
        bo.bytes.read(iova - first, into);
        true
    };
    let mut reached = BTreeSet::new();
    let mut add = |start: u64, end: u64| {
        reached.extend(inside(start, end).map(|bo| bo.handle));
    };
    for program in Programs::new(job.tasks, read) {
        let words = words_range(&program.task);
        add(words.start, words.end);
        for (_, touched) in program.extents() {
            match touched {
                Ok(extents) => extents
                    .iter()
                    .for_each(|extent| add(extent.start, extent.end)),
                Err(_) => add(0, IOVA_END),
            }
        }
    }
    reached
}

fn device_payload(info: &DeviceInfo) -> Vec<u8> {
    let chip = ChipProfile::RK3588;
    let profile = [
        ("cores", chip.cores),
        ("cbuf_banks", chip.cbuf_banks),
        ("cbuf_bank_bytes", chip.cbuf_bank_bytes),
        ("weight_banks_min", chip.weight_banks_min),
        ("resident_kernels", chip.resident_kernels),
        ("kernel_bytes_max", chip.kernel_bytes_max),
        ("line_group", chip.line_group),
        ("grains_max", chip.grains_max),
        ("input_channels_max", chip.input_channels_max),
        ("output_channels_max", chip.output_channels_max),
    ];
    let (major, minor, patch) = info.version;
    let flags = if info.is_model { DEVICE_IS_MODEL } else { 0 };
    let record = DeviceRecord {
        flags: flags.into(),
        cores: info.cores.into(),
        version: [major, minor, patch].map(Into::into),
        profile: (profile.len() as u32).into(),
    };
    let mut payload = record.as_bytes().to_vec();
    let recorder = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));
    for text in [&info.name, &info.driver, &info.description] {
        push_text(&mut payload, text);
    }
    push_text(&mut payload, chip.name);
    push_text(&mut payload, recorder);
    for (name, value) in profile {
        push_text(&mut payload, name);
        payload.extend_from_slice(U32::new(value).as_bytes());
    }
    payload
}

/// Nanoseconds in 64 bits: some centuries.
fn nanoseconds(time: u128) -> u64 {
    u64::try_from(time).unwrap_or(u64::MAX)
}
