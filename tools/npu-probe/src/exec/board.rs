// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a program on a device through its driver: the kernel places the buffers, and the
//! program is changed to match.

use std::mem;
use std::time::Duration;

use rknpu_regcmd::Word;
use rocket_uapi::{Bo, BufferAccess, ByteLen, Deadline, Device, FenceStatus, RawJob, sys};

use super::ProgramRun;
use super::memory::{MemoryRegion, ProgramMemory};
use super::relocate::{MovedBuffer, relocate};
use crate::exit::Failure;

/// How long to wait for the job: several times the driver's limit of 500 ms, since earlier
/// jobs of other users may run first.
const WAIT: Duration = Duration::from_secs(10);

/// Runs the program of `memory`, whose words are `words`.
pub(crate) fn run(
    device: &Device,
    memory: &mut ProgramMemory,
    words: &[Word],
) -> Result<ProgramRun, Failure> {
    let mut words = words.to_vec();
    let (mut bos, mut moved, mut moves) = (Vec::new(), Vec::new(), Vec::new());
    for region in memory.regions.values() {
        let bo = allocate(device, region)?;
        let (what, from, to) = (&region.what, region.start, bo.iova().0);
        if from != to {
            moves.push(format!("{what} at {to:#x} instead of {from:#x}"));
        }
        // A region has fewer bytes than a buffer object can.
        let len = region.bytes.len() as u32;
        moved.push(MovedBuffer { from, to, len });
        bos.push(bo);
    }
    let changed_words = relocate(&mut words, &moved).map_err(Failure::usage(format!(
        "the kernel placed {}, and the program cannot be changed to match",
        moves.join(", ")
    )))?;
    let mut program = memory.program;
    for (bo, region) in bos.iter_mut().zip(memory.regions.values()) {
        let iova = bo.iova();
        let mut to = bo
            .write(Deadline::NOW)
            .map_err(Failure::device("cannot write a buffer"))?;
        // A BO has at least the region's pages.
        let (to, _) = to.split_at_mut(region.bytes.len());
        to.copy_from_slice(&region.bytes);
        if region.start == memory.program {
            program = iova.0;
            let bytes = crate::program::to_binary(&words);
            to[..bytes.len()].copy_from_slice(&bytes);
        }
    }
    let task = sys::Task {
        regcmd: program,
        regcmd_count: u32::try_from(words.len()).unwrap_or(u32::MAX),
    };
    let handles: Vec<_> = bos.iter().map(Bo::handle).collect();
    let job = RawJob {
        tasks: &[task],
        reads: &[],
        // All buffers: an unknown program may write any of them, and the job's fence is only
        // on buffers that the job lists as written.
        writes: &handles,
    };
    // SAFETY: the kernel gives each file a separate IOMMU domain, so the NPU reaches only the
    // buffers of this file, `bos`. Their guards are gone (the loop above). They live, or are
    // leaked, until the job has ended. With `--unsafe-device` the user accepts what the
    // program does to the NPU itself.
    #[expect(unsafe_code, reason = "raw words are what this is for")]
    unsafe { device.submit_raw(&[job]) }.map_err(Failure::device("the driver refused the job"))?;
    let status = match finish(&bos, memory) {
        Ok(status) => status,
        Err(error) => {
            // The NPU may still write to the buffers.
            mem::forget(bos);
            return Err(error);
        }
    };
    let elsewhere = moved.iter().filter(|buffer| buffer.from != buffer.to);
    Ok(ProgramRun {
        completed: matches!(status, Some(FenceStatus::Signaled)),
        end: match status {
            Some(FenceStatus::Failed(errno)) => format!("the driver killed the job: {errno}"),
            // A kernel drops invalid jobs without an error.
            _ => "the driver reports the job as done; it reports the same for a dropped job"
                .to_owned(),
        },
        changed_words,
        moved: elsewhere.map(|buffer| (buffer.from, buffer.to)).collect(),
        ..ProgramRun::default()
    })
}

fn allocate(device: &Device, region: &MemoryRegion) -> Result<Bo, Failure> {
    let what = &region.what;
    let len = ByteLen::new(region.bytes.len());
    let len = len.map_err(Failure::usage(format!("cannot place {what}")))?;
    let bo = device.alloc(len);
    bo.map_err(Failure::device(format!(
        "cannot create a buffer for {what}"
    )))
}

/// Waits for the job, and reads the buffers back.
fn finish(bos: &[Bo], memory: &mut ProgramMemory) -> Result<Option<FenceStatus>, Failure> {
    let until = Deadline::after(WAIT);
    let wait = |bo: &Bo| {
        let fence = bo
            .fence(BufferAccess::Read)
            .map_err(Failure::device("cannot check the job"))?;
        fence
            .wait(until)
            .map_err(Failure::device("the job did not end"))
    };
    let status = bos.first().map(wait).transpose()?;
    for (bo, region) in bos.iter().zip(memory.regions.values_mut()) {
        let from = bo
            .read(until)
            .map_err(Failure::device("cannot read a buffer"))?;
        let (from, _) = from.split_at(region.bytes.len());
        region.bytes.copy_from_slice(from);
    }
    Ok(status)
}
