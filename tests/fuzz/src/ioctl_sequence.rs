// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random calls on several files of one device.
//!
//! The bytes are up to 40 calls on three files: those of `rocket-fuzz`
//! ([`rocket_hw_tests::fuzz`]), with programs of the known families, and raw requests
//! with invalid structures and pointers. These must hold:
//!
//! - nothing panics or fails inside the model, every wait ends, and the driver has a
//!   reason for every error;
//! - another file's memory stays the same;
//! - when all files are closed, no descriptor is left, handles, addresses and offsets
//!   are reused, and a matmul is right.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arbitrary::{Result, Unstructured};
use npu_model::driver::{Arena, DriverProfile, DrmFile, Iommu};
use npu_model::event::{Event, KillCause};
use npu_model::{Model, ModelOptions};
use rknpu_regcmd::Word;
use rocket_hw_tests::fuzz::{CallChoices, Canary, Limits, World, multiplies};
use rocket_uapi::{Device, plain_ioctl, sys};
use rustix::io::Errno;

use crate::board::TASK_LIMIT;
use crate::words;

const REQUESTS: [u32; 9] = [
    sys::VERSION,
    sys::GEM_CLOSE,
    sys::GET_CAP,
    sys::PRIME_HANDLE_TO_FD,
    sys::PRIME_FD_TO_HANDLE,
    sys::CREATE_BO,
    sys::SUBMIT,
    sys::PREP_BO,
    sys::FINI_BO,
];

/// All errors that the driver has a reason for.
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
/// Number of files that the calls use.
const FILES: usize = 3;
/// Time limit for jobs in flight, which keep the objects of closed files: far
/// longer than any is computed.
const PATIENCE: Duration = Duration::from_secs(15);

/// Makes random calls on files of one device. Panics after an error that the
/// driver has no reason for, if anything is left when all files are closed, or
/// if another file's memory has changed.
pub fn ioctl_sequence(data: &[u8]) {
    let descriptors = open_descriptors();
    let mut u = Unstructured::new(data);
    let Ok(options) = options(&mut u) else {
        return;
    };
    let model = Model::new(options);
    let device = model.open_device();
    let canary = Canary::new(&device).unwrap();
    let _ = calls(&model, u);
    canary.check().unwrap();
    drop(device);
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
    gives_again(&model.open_file());
    multiplies(&model.open_device()).unwrap();
    drop(model);
    assert_eq!(open_descriptors(), descriptors, "descriptors leak");
}

/// Makes calls on separate files, as long as there are bytes.
fn calls(model: &Model, u: Unstructured<'_>) -> Result<()> {
    let files: [_; FILES] = std::array::from_fn(|_| Arc::new(model.open_file()));
    // SAFETY: sequences hold no guard of a buffer, and each handle is closed by its owner.
    #[allow(unsafe_code)]
    let device = |file: &Arc<DrmFile>| unsafe { Device::new(Arc::clone(file) as _) };
    let mut bytes = Bytes(u);
    let limits = Limits {
        hangs: u32::MAX,
        known_bugs: bytes.once_in(2),
        forks: false,
    };
    let mut world = World::new(&files.each_ref().map(device), bytes, limits).unwrap();
    for _ in 0..CALLS_MAX {
        let bytes = world.choices();
        if bytes.0.is_empty() {
            break;
        }
        if bytes.once_in(6) {
            let file = bytes.within(0..FILES as u64) as usize;
            raw(&files[file], &mut bytes.0)?;
        } else {
            world.step().unwrap();
        }
    }
    Ok(())
}

/// A fuzzer's bytes as numbers, then zeros.
struct Bytes<'a>(Unstructured<'a>);

impl CallChoices for Bytes<'_> {
    fn any(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or_default()
    }

    fn within(&mut self, range: Range<u64>) -> u64 {
        let last = range.end.saturating_sub(1).max(range.start);
        self.0
            .int_in_range(range.start..=last)
            .unwrap_or(range.start)
    }

    /// The matmul with a few places changed, or a program of any family.
    fn program(&mut self, right: &[u64]) -> Vec<u64> {
        let mut words: Vec<_> = right.iter().map(|&bits| Word::from_bits(bits)).collect();
        let changed = if self.once_in(2) {
            words::program(&mut self.0).map(|program| words = program)
        } else {
            words::change(&mut words, &mut self.0)
        };
        // If the bytes end, the program keeps the changes so far.
        let _ = changed;
        words.iter().map(|word| word.bits()).collect()
    }
}

/// A kernel without its bugs: some of them end with the device gone.
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

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Checks that the first object of a fresh file gets the first handle and address,
/// and also the first offset, once no job in flight keeps that.
fn gives_again(file: &DrmFile) {
    let start = Instant::now();
    loop {
        let mut bo = sys::CreateBo {
            size: 4 * PAGE,
            ..sys::CreateBo::default()
        };
        plain_ioctl(file, sys::CREATE_BO, &mut bo).unwrap();
        assert_eq!((bo.handle, bo.dma_address), (1, 0));
        // The handle, and padding.
        let mut closed = u64::from(bo.handle).to_le_bytes();
        file.ioctl(sys::GEM_CLOSE, &mut closed, &Arena::new())
            .unwrap();
        if bo.offset == OFFSETS {
            return;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "the mmap offset {OFFSETS:#x} is not released"
        );
        std::thread::yield_now();
    }
}

/// Makes any request with any bytes; some may be valid addresses.
fn raw(file: &DrmFile, u: &mut Unstructured<'_>) -> Result<()> {
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
    let exports = request & 0xffff == sys::PRIME_HANDLE_TO_FD & 0xffff;
    let told =
        request >> 31 == 1 && (12..=arg.len()).contains(&((request >> 16 & 0x3fff) as usize));
    // A descriptor without a returned number would stay open, as on a kernel.
    if exports && !told {
        return Ok(());
    }
    let result = file.ioctl(request, &mut arg, &arena);
    if let Err(errno) = result {
        // The fuzzer's own timer is a signal handler.
        let waits = request & 0xff == sys::PREP_BO & 0xff && errno == Errno::INTR;
        assert!(
            waits || ERRORS.contains(&errno),
            "request {request:#x} fails with {errno:?}"
        );
    } else if exports {
        let fd = i32::from_le_bytes(arg[8..12].try_into().unwrap());
        nix::unistd::close(fd).unwrap();
    }
    Ok(())
}
