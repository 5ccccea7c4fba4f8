// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw ioctls, mappings and closes on several files of one device, with
//! arguments of which some are wild.
//!
//! The bytes are up to 40 calls on up to three files: raw requests, wild structures
//! and pointers, SUBMIT of products and of any program, dma-bufs, mappings, closes.
//! What must hold:
//!
//! - nothing panics or fails inside the model, no wait never ends, and there are only
//!   errors that the driver has a reason for;
//! - another file's memory and handles stay;
//! - when all is closed no descriptor is left, handles, addresses and offsets are
//!   given again, and a product is right.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arbitrary::{Result, Unstructured};
use npu_model::driver::{Arena, DriverProfile, DrmFile, Iommu, Mapping};
use npu_model::event::{Event, KillCause};
use npu_model::{Model, ModelOptions};
use rknpu_regcmd::{Binding, BufferId, ChipProfile, Iova, LinkedProgram, MatmulTask, MatmulType};
use rocket_uapi::sys::{
    CREATE_BO, DRM_CLOEXEC, DRM_RDWR, FINI_BO, GEM_CLOSE, GET_CAP, PREP_BO,
    PRIME_FD_TO_HANDLE as FD_TO_HANDLE, PRIME_HANDLE_TO_FD as HANDLE_TO_FD, SUBMIT, VERSION,
};
use rocket_uapi::{MapRequest, export, import, write_fence};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::board::TASK_LIMIT;
use crate::words;
use families::bytes;

const REQUESTS: [u32; 9] = [
    VERSION,
    GEM_CLOSE,
    GET_CAP,
    HANDLE_TO_FD,
    FD_TO_HANDLE,
    CREATE_BO,
    SUBMIT,
    PREP_BO,
    FINI_BO,
];

/// Every error that the driver has a reason for.
const ERRORS: [Errno; 11] = [
    Errno::NOTTY,
    Errno::INVAL,
    Errno::FAULT,
    Errno::NOENT,
    Errno::NOMEM,
    Errno::NOSPC,
    Errno::BUSY,
    Errno::TIMEDOUT,
    Errno::BADF,
    Errno::ACCESS,
    Errno::OPNOTSUPP,
];

/// First mmap offset that CREATE_BO gives.
const OFFSETS: u64 = 1 << 32;
const PAGE: u32 = 4096;
/// Most calls of one input.
const CALLS_MAX: u8 = 40;
/// Handles and descriptors are drawn from the first few.
const NAMES: u32 = 6;

/// Files of one device under random calls. No panic, no call that never
/// returns, no error that the driver has no reason for, nothing left when all
/// is closed, and another file's memory as it was.
pub fn ioctl_sequence(data: &[u8]) {
    let descriptors = open_descriptors();
    let mut u = Unstructured::new(data);
    let Ok(options) = options(&mut u) else {
        return;
    };
    let model = Model::new(options);
    let other = Client::new(&model);
    let secret = other.create(4 * PAGE).unwrap();
    other.fill(secret.handle, 0, &pattern());
    {
        let mut world = World {
            files: vec![Client::new(&model), Client::new(&model)],
            dma_bufs: Vec::new(),
            mappings: Vec::new(),
            model: &model,
        };
        for _ in 0..CALLS_MAX {
            if u.is_empty() || world.call(&mut u).is_err() {
                break;
            }
        }
    }
    assert_eq!(other.file.handles_in_use(), 1);
    assert!(
        other.read(secret.handle, pattern().len()) == pattern(),
        "foreign memory changed"
    );
    drop(other);
    for event in model.take_events() {
        let failure = matches!(
            event,
            Event::JobKilled {
                cause: KillCause::ModelFailure,
                ..
            }
        );
        assert!(!failure, "{event}");
    }
    works(&model);
    drop(model);
    assert_eq!(open_descriptors(), descriptors, "descriptors are left");
}

/// A kernel without its bugs, some of which end with the device gone.
fn options(u: &mut Unstructured<'_>) -> Result<ModelOptions> {
    let profile = u.choose(&DriverProfile::ALL)?.clone();
    let driver = DriverProfile {
        iommu: *u.choose(&[Iommu::Rockchip, Iommu::SmmuV3])?,
        job_limit: TASK_LIMIT,
        autosuspend: Duration::ZERO,
        ..profile
    };
    Ok(ModelOptions {
        cores: u.int_in_range(1..=3)?,
        hang_timeout: Duration::ZERO,
        driver,
        registers_lost: u.arbitrary()?,
        ..ModelOptions::default()
    })
}

fn pattern() -> Vec<u8> {
    (0..4 * PAGE).map(|at| (at ^ at >> 8) as u8).collect()
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How long jobs in flight may keep the objects of closed files: far longer
/// than any is computed.
const PATIENCE: Duration = Duration::from_secs(15);

/// The first object of a fresh file, once no job in flight keeps the mmap
/// offset that it has to get.
fn first_object(client: &Client) -> Bo {
    let start = Instant::now();
    loop {
        let bo = client.create(4 * PAGE).unwrap();
        assert_eq!((bo.handle, bo.iova), (1, 0));
        if bo.offset == OFFSETS {
            return bo;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{:#x} is not given back",
            OFFSETS
        );
        client.close(bo.handle);
        std::thread::yield_now();
    }
}

/// The device gives what was used again, and computes.
fn works(model: &Arc<Model>) {
    let client = Client::new(model);
    let bo = first_object(&client);
    let (linked, expected) = product(bo.iova);
    client.fill(bo.handle, 0, &[3; 128]);
    client.fill(bo.handle, PAGE.into(), &[0xfe; 1024]);
    client.fill(bo.handle, (3 * PAGE).into(), &bytes(linked.words()));
    let words = linked.words().len() as u32;
    let submitted = client.submit(&Submission {
        tasks: vec![(bo.iova + 3 * PAGE, words)],
        reads: Vec::new(),
        writes: vec![bo.handle],
        copies: 1,
        wild: Vec::new(),
    });
    assert_eq!(submitted, Ok(()));
    client.prep(bo.handle, i64::MAX).unwrap();
    let all = client.read(bo.handle, 4 * PAGE as usize);
    assert!(
        all[2 * PAGE as usize..][..expected.len()] == expected,
        "wrong product"
    );
}

/// A product of threes and minus twos within the four pages at `iova`.
fn product(iova: u32) -> (LinkedProgram, Vec<u8>) {
    let buffer = BufferId(0);
    let task = MatmulTask {
        ty: MatmulType::Int8ToInt32,
        m: 4,
        k: 32,
        n: 32,
        a: buffer.at(0),
        b: buffer.at(PAGE),
        c: buffer.at(2 * PAGE),
    };
    let binding = Binding {
        id: buffer,
        iova: Iova(iova),
        len: 4 * PAGE,
    };
    let linked = task.program(&ChipProfile::RK3588).unwrap().link(&[binding]);
    let expected = (-192i32)
        .to_le_bytes()
        .repeat((task.c_bytes() / 4) as usize);
    (linked.unwrap(), expected)
}

/// A buffer object as CREATE_BO describes it.
#[derive(Clone, Copy)]
struct Bo {
    handle: u32,
    iova: u32,
    offset: u64,
}

/// A SUBMIT.
struct Submission {
    tasks: Vec<(u32, u32)>,
    reads: Vec<u32>,
    writes: Vec<u32>,
    copies: u32,
    /// Bytes to be put over the structures: where, and what.
    wild: Vec<(usize, u32)>,
}

/// One open file.
struct Client {
    file: DrmFile,
}

impl Client {
    fn new(model: &Arc<Model>) -> Self {
        Self {
            file: model.open_file(),
        }
    }

    fn ioctl(&self, request: u32, arg: &mut [u8], user: &Arena) -> std::result::Result<(), Errno> {
        let result = self.file.ioctl(request, arg, user).map(drop);
        if let Err(errno) = result {
            // The timer of the fuzzer itself is a signal handler.
            let waits = request & 0xff == PREP_BO & 0xff && errno == Errno::INTR;
            assert!(waits || ERRORS.contains(&errno), "{request:#x}: {errno:?}");
        }
        result
    }

    fn create(&self, size: u32) -> std::result::Result<Bo, Errno> {
        let mut arg = [0; 24];
        arg[..4].copy_from_slice(&size.to_le_bytes());
        self.ioctl(CREATE_BO, &mut arg, &Arena::new())?;
        let word = |at: usize| u32::from_le_bytes(arg[at..at + 4].try_into().unwrap());
        Ok(Bo {
            handle: word(4),
            iova: word(8),
            offset: u64::from(word(20)) << 32 | u64::from(word(16)),
        })
    }

    fn close(&self, handle: u32) {
        let mut arg = [0; 8];
        arg[..4].copy_from_slice(&handle.to_le_bytes());
        self.ioctl(GEM_CLOSE, &mut arg, &Arena::new()).unwrap();
    }

    fn prep(&self, handle: u32, until: i64) -> std::result::Result<(), Errno> {
        let mut arg = [0; 16];
        arg[..4].copy_from_slice(&handle.to_le_bytes());
        arg[8..].copy_from_slice(&until.to_le_bytes());
        loop {
            let result = self.ioctl(PREP_BO, &mut arg, &Arena::new());
            if result != Err(Errno::INTR) {
                return result;
            }
        }
    }

    fn submit(&self, submission: &Submission) -> std::result::Result<(), Errno> {
        let arena = Arena::new();
        let numbers =
            |list: &[u32]| -> Vec<u8> { list.iter().flat_map(|n| n.to_le_bytes()).collect() };
        let tasks: Vec<u32> = submission
            .tasks
            .iter()
            .flat_map(|&(at, words)| [at, words])
            .collect();
        let mut job = Vec::new();
        for list in [&tasks, &submission.reads, &submission.writes] {
            job.extend(arena.push(&numbers(list)).to_le_bytes());
        }
        let counts = [
            submission.tasks.len(),
            8,
            submission.reads.len(),
            submission.writes.len(),
        ];
        job.extend(numbers(&counts.map(|count| count as u32)));
        let mut arg = [0; 24];
        for &(at, value) in &submission.wild {
            if let Some(target) = job.get_mut(at..at + 4) {
                target.copy_from_slice(&value.to_le_bytes());
            }
        }
        let jobs = arena.push(&job.repeat(submission.copies as usize));
        arg[..8].copy_from_slice(&jobs.to_le_bytes());
        arg[8..12].copy_from_slice(&submission.copies.to_le_bytes());
        arg[12..16].copy_from_slice(&(job.len() as u32).to_le_bytes());
        for &(at, value) in &submission.wild {
            if let Some(target) = at
                .checked_sub(job.len())
                .and_then(|at| arg.get_mut(at..at + 4))
            {
                target.copy_from_slice(&value.to_le_bytes());
            }
        }
        self.ioctl(SUBMIT, &mut arg, &arena)
    }

    /// A dma-buf of an object, to be read and written.
    fn export(&self, handle: u32) -> std::result::Result<OwnedFd, Errno> {
        export(&self.file, handle, DRM_CLOEXEC | DRM_RDWR)
    }

    /// Writes to an object as an importer of its dma-buf would: through the
    /// kernel, so that jobs may run meanwhile.
    fn fill(&self, handle: u32, at: u64, data: &[u8]) {
        if let Ok(dma_buf) = self.export(handle) {
            let file = File::from(dma_buf);
            // The file is sealed, and cannot be written beyond its end.
            let _ = file.write_all_at(data, at);
        }
    }

    fn read(&self, handle: u32, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let file = File::from(self.export(handle).unwrap());
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }
}

/// What a sequence has open.
struct World<'a> {
    model: &'a Arc<Model>,
    files: Vec<Client>,
    dma_bufs: Vec<OwnedFd>,
    mappings: Vec<Mapping>,
}

/// Most files, dma-bufs or mappings that are open at once.
const OPEN_MAX: usize = 8;

impl World<'_> {
    /// One call.
    fn call(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let which = u.int_in_range(0..=FILES_MAX - 1)?;
        let Some(client) = self.files.get(which) else {
            self.files.push(Client::new(self.model));
            return Ok(());
        };
        let handle = u.int_in_range(0..=NAMES)?;
        match u.int_in_range(0..=12)? {
            0 | 1 => raw(client, u)?,
            2 | 3 => {
                let size = match u.int_in_range(0..=3)? {
                    0 => u.arbitrary()?,
                    _ => u.int_in_range(0..=16 * PAGE)?,
                };
                let _ = client.create(size);
            }
            4 => {
                let mut arg = [0; 8];
                arg[..4].copy_from_slice(&handle.to_le_bytes());
                let request = if u.arbitrary()? { GEM_CLOSE } else { FINI_BO };
                let _ = client.ioctl(request, &mut arg, &Arena::new());
            }
            5 => {
                // For ever is not long: every job ends.
                let until = match u.int_in_range(0..=2)? {
                    0 => i64::MAX,
                    1 => u.int_in_range(-1..=1)?,
                    _ => u.arbitrary()?,
                };
                let _ = client.prep(handle, until);
            }
            6 | 7 => {
                let submission = submission(u)?;
                let _ = client.submit(&submission);
            }
            8 => fill(client, handle, u)?,
            9 => {
                if let Ok(dma_buf) = client.export(handle) {
                    assert!(import(&client.file, dma_buf.as_fd()).is_ok());
                    self.dma_bufs.push(dma_buf);
                }
            }
            10 => {
                if let Some(dma_buf) = self.dma_bufs.get(u.int_in_range(0..=OPEN_MAX - 1)?) {
                    let imported = import(&client.file, dma_buf.as_fd());
                    assert!(imported.is_ok(), "{imported:?}");
                }
            }
            11 => {
                let offset = match u.int_in_range(0..=3)? {
                    0 => u.arbitrary()?,
                    _ => OFFSETS + u.int_in_range(0..=63_u64)? * u64::from(PAGE),
                };
                let len = u.int_in_range(0..=20 * PAGE as usize)?;
                let prot = ProtFlags::from_bits_truncate(u.int_in_range(0..=7)?);
                let flags = if u.ratio(7, 8)? {
                    MapFlags::SHARED
                } else {
                    MapFlags::PRIVATE
                };
                match client.file.mmap(&MapRequest {
                    offset,
                    len,
                    prot,
                    flags,
                }) {
                    Ok(mapping) => self.mappings.push(mapping),
                    Err(errno) => assert!(
                        [Errno::INVAL, Errno::ACCESS, Errno::NOMEM, Errno::PERM].contains(&errno),
                        "{errno:?}"
                    ),
                }
                assert!(client.file.poll().is_empty());
                if let Ok(fence) = write_fence(&client.file, handle) {
                    fence.status().unwrap();
                }
            }
            _ => match u.int_in_range(0..=2)? {
                0 => drop(self.files.remove(which)),
                1 => drop(self.mappings.pop()),
                _ => drop(self.dma_bufs.pop()),
            },
        }
        self.mappings.truncate(OPEN_MAX);
        self.dma_bufs.truncate(OPEN_MAX);
        Ok(())
    }
}

/// Most files besides the one that looks on.
const FILES_MAX: usize = 3;

/// Any request with any bytes, of which some may be addresses that exist.
fn raw(client: &Client, u: &mut Unstructured<'_>) -> Result<()> {
    let request = match u.int_in_range(0..=3)? {
        0 => u.arbitrary()?,
        // The right letter, any number, size and direction.
        1 => {
            let (number, size) = (u.arbitrary::<u8>()?, u.int_in_range(0..=80_u32)?);
            u.int_in_range(0..=3_u32)? << 30 | size << 16 | 0x6400 | u32::from(number)
        }
        _ => *u.choose(&REQUESTS)?,
    };
    let arena = Arena::new();
    let address = arena.push(&[0; 128]);
    let mut arg = vec![0; u.int_in_range(0..=72)?];
    for chunk in arg.chunks_mut(8) {
        let value: u64 = match u.int_in_range(0..=3)? {
            0 => address + u64::from(u.arbitrary::<u8>()?),
            1 => u.arbitrary()?,
            2 => u.int_in_range(0..=8)?,
            _ => 0,
        };
        chunk.copy_from_slice(&value.to_le_bytes()[..chunk.len()]);
    }
    let exports = request & 0xffff == HANDLE_TO_FD & 0xffff;
    let told =
        request >> 31 == 1 && (12..=arg.len()).contains(&((request >> 16 & 0x3fff) as usize));
    // A descriptor whose number is not told would stay open, as on a kernel.
    if exports && !told {
        return Ok(());
    }
    if client.ioctl(request, &mut arg, &arena).is_ok() && exports {
        let fd = i32::from_le_bytes(arg[8..12].try_into().unwrap());
        nix::unistd::close(fd).unwrap();
    }
    Ok(())
}

fn submission(u: &mut Unstructured<'_>) -> Result<Submission> {
    fn list<T>(
        u: &mut Unstructured<'_>,
        one: impl Fn(&mut Unstructured<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        (0..u.int_in_range(0..=2)?).map(|_| one(u)).collect()
    }
    let name = |u: &mut Unstructured<'_>| u.int_in_range(0..=NAMES);
    Ok(Submission {
        tasks: list(u, |u| {
            // A whole object as a program, a page of one, or anything.
            Ok(match u.int_in_range(0..=3)? {
                0 => (words::value(u)?, words::value(u)?),
                1 => (u.int_in_range(0..=63)? * PAGE, u.int_in_range(0..=600)?),
                _ => (u.int_in_range(0..=7)? * PAGE, PRODUCT_WORDS),
            })
        })?,
        reads: list(u, name)?,
        writes: list(u, name)?,
        copies: u.int_in_range(1..=3)?,
        wild: if u.ratio(1, 4)? {
            list(u, |u| Ok((u.int_in_range(0..=60)?, words::value(u)?)))?
        } else {
            Vec::new()
        },
    })
}

/// Words of a product, as most tasks are submitted with.
const PRODUCT_WORDS: u32 = 126;

/// Writes a program to an object: a product on the first pages, where it is
/// right if the object is the file's first, or one of any family.
fn fill(client: &Client, handle: u32, u: &mut Unstructured<'_>) -> Result<()> {
    let program = if u.arbitrary()? {
        let (linked, _) = product(0);
        assert_eq!(linked.words().len(), PRODUCT_WORDS as usize);
        let mut words = linked.words().to_vec();
        words::change(&mut words, u)?;
        words
    } else {
        words::program(u)?
    };
    let at = u64::from(u.int_in_range(0..=7_u8)?) * u64::from(PAGE);
    client.fill(handle, at, &bytes(&program));
    Ok(())
}
