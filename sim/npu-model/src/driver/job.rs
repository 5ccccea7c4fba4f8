// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs: how SUBMIT reads them from the client's memory, and what makes the
//! driver drop one without a word.
//!
//! SUBMIT fails as a whole only for what concerns the whole array. All that
//! is wrong with a single job makes that job disappear: the kernel computes
//! an error code and ignores it (rocket_ioctl_submit, Linux 6.18 to 7.3).

use std::sync::Arc;

use rocket_uapi::{Iova, RawTask, UserMemory, sys};
use rustix::io::Errno;
use zerocopy::FromBytes;

use super::fence::Fence;
use super::gem::GemObject;
use super::iommu::AddressSpace;
use super::memory::PAGE_BYTES;

/// What a job asks for, before it is accepted.
#[derive(Debug)]
pub(super) struct JobRequest {
    pub(super) tasks: Vec<RawTask>,
    pub(super) reads: Vec<Arc<GemObject>>,
    pub(super) writes: Vec<Arc<GemObject>>,
}

impl JobRequest {
    /// The scheduler drops its references from now on, but not at once.
    pub(super) fn note_end(&self) {
        for object in self.reads.iter().chain(&self.writes) {
            object.space().life.note_job_end();
        }
    }

    /// What it writes has changed behind the CPU's caches.
    pub(super) fn note_writes(&self) {
        for object in &self.writes {
            object.note_npu_write();
        }
    }

    /// Tells of what the CPU wrote and the NPU will not see.
    pub(super) fn look_at_caches(&self) {
        for object in self.reads.iter().chain(&self.writes) {
            object.look_at_cache();
        }
    }
}

/// How the jobs ended that the driver accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Their fences have signalled without an error.
    pub completed: u64,
    /// The driver reset their core.
    pub killed: u64,
    /// They were queued when their process ended.
    pub lost: u64,
    /// They have not ended yet.
    pub unfinished: u64,
}

/// A job that the driver accepted.
#[derive(Debug)]
pub(super) struct AcceptedJob {
    /// Position in the order of acceptance on this device, from 1 on.
    pub(super) id: u64,
    pub(super) request: JobRequest,
    /// Address space of the file it came by.
    pub(super) space: Arc<AddressSpace>,
    /// Fences of the jobs that wrote what this one reads or writes.
    pub(super) dependencies: Vec<Arc<Fence>>,
    pub(super) fence: Arc<Fence>,
}

/// Why one job of a SUBMIT does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DropReason {
    #[error("it has no tasks (EINVAL)")]
    NoTasks,
    #[error("task_struct_size {0} is below 8 (EINVAL)")]
    TaskStructSize(u32),
    #[error("task {0} has no command words (EINVAL)")]
    NoWords(usize),
    #[error("its task array is not readable (EFAULT)")]
    Tasks,
    #[error("an array of buffer object handles is not readable (EFAULT)")]
    Handles,
    #[error("handle {0} names no buffer object of this file (ENOENT)")]
    Handle(u32),
    #[error("a count is beyond what the kernel allocates (ENOMEM)")]
    Count,
    #[error("it lists a buffer object twice, or as read and as written (EALREADY)")]
    Twice,
}

/// Most bytes that `kvmalloc_array` gives: more than `INT_MAX` is refused.
const KERNEL_ALLOCATION_LIMIT: u64 = i32::MAX as u64;

/// Bytes of the kernel's own entry per task (`struct rocket_task`: the
/// address and the count).
const KERNEL_TASK_BYTES: u64 = 16;

/// Bytes of a pointer in the kernel.
const KERNEL_POINTER_BYTES: u64 = 8;

fn allocation_fails(count: u32, bytes_each: u64) -> bool {
    u64::from(count) * bytes_each > KERNEL_ALLOCATION_LIMIT
}

/// Reads the job array of a SUBMIT.
///
/// # Errors
/// What SUBMIT itself returns: `EINVAL`, `ENOMEM`, `EFAULT`.
pub(super) fn read_jobs(
    submit: &sys::Submit,
    user: &dyn UserMemory,
) -> Result<Vec<sys::Job>, Errno> {
    if submit.job_count == 0 {
        return Ok(Vec::new());
    }
    if submit.reserved != 0 || (submit.job_struct_size as usize) < size_of::<sys::Job>() {
        return Err(Errno::INVAL);
    }
    if allocation_fails(submit.job_count, size_of::<sys::Job>() as u64) {
        return Err(Errno::NOMEM);
    }
    let &sys::Submit {
        jobs,
        job_struct_size: stride,
        job_count: count,
        ..
    } = submit;
    read_array(user, jobs, stride, count).ok_or(Errno::FAULT)
}

/// Most bytes copied from the client at once.
const COPY_BYTES: usize = 64 << 10;

/// Reads an array whose entries are `stride` bytes apart; `None` where one
/// of them is not readable.
///
/// Memory is taken as the reading proceeds, not as the count says: that is
/// the client's word, and a wrong one mostly ends at an unmapped page long
/// before.
fn read_array<T: FromBytes>(
    user: &dyn UserMemory,
    array: u64,
    stride: u32,
    count: u32,
) -> Option<Vec<T>> {
    let stride = stride as usize;
    // Within this stride each page of the span has a part of some entry, so
    // reading the gaps as well cannot fail where reading entries would not.
    let at_once = if stride <= PAGE_BYTES {
        COPY_BYTES / stride.max(1)
    } else {
        1
    };
    let mut entries = Vec::new();
    let mut chunk = Vec::new();
    let mut left = count as usize;
    let mut at = array;
    while left > 0 {
        let now = left.min(at_once);
        // The client need not have the tail of the last entry.
        chunk.resize((now - 1) * stride + size_of::<T>(), 0);
        user.read(at, &mut chunk).ok()?;
        entries.try_reserve(now).ok()?;
        for entry in chunk.chunks(stride) {
            entries.push(T::read_from_prefix(entry).ok()?.0);
        }
        left -= now;
        at = at.wrapping_add((now * stride) as u64);
    }
    Some(entries)
}

/// Reads what one job points to and looks its handles up.
///
/// # Errors
/// Why the job is dropped, in the order in which the kernel looks.
pub(super) fn read_job(
    job: &sys::Job,
    user: &dyn UserMemory,
    lookup: &dyn Fn(u32) -> Option<Arc<GemObject>>,
) -> Result<JobRequest, DropReason> {
    let request = JobRequest {
        tasks: read_tasks(job, user)?,
        reads: read_handles(job.in_bo_handles, job.in_bo_handle_count, user, lookup)?,
        writes: read_handles(job.out_bo_handles, job.out_bo_handle_count, user, lookup)?,
    };
    // The kernel locks the reservations of both lists together; meeting one
    // that it has already locked ends the job.
    let mut seen: Vec<_> = request
        .reads
        .iter()
        .chain(&request.writes)
        .map(Arc::as_ptr)
        .collect();
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(DropReason::Twice);
    }
    Ok(request)
}

fn read_tasks(job: &sys::Job, user: &dyn UserMemory) -> Result<Vec<RawTask>, DropReason> {
    if job.task_count == 0 {
        return Err(DropReason::NoTasks);
    }
    if (job.task_struct_size as usize) < size_of::<sys::Task>() {
        return Err(DropReason::TaskStructSize(job.task_struct_size));
    }
    if allocation_fails(job.task_count, KERNEL_TASK_BYTES) {
        return Err(DropReason::Count);
    }
    let tasks: Vec<sys::Task> = read_array(user, job.tasks, job.task_struct_size, job.task_count)
        .ok_or(DropReason::Tasks)?;
    if let Some(index) = tasks.iter().position(|task| task.regcmd_count == 0) {
        return Err(DropReason::NoWords(index));
    }
    let tasks = tasks.into_iter().map(|task| RawTask {
        regcmd: Iova(task.regcmd),
        words: task.regcmd_count,
    });
    Ok(tasks.collect())
}

fn read_handles(
    array: u64,
    count: u32,
    user: &dyn UserMemory,
    lookup: &dyn Fn(u32) -> Option<Arc<GemObject>>,
) -> Result<Vec<Arc<GemObject>>, DropReason> {
    if allocation_fails(count, KERNEL_POINTER_BYTES) {
        return Err(DropReason::Count);
    }
    // The kernel copies the whole array before it looks one handle up.
    const STRIDE: u32 = size_of::<u32>() as u32;
    let handles: Vec<u32> = read_array(user, array, STRIDE, count).ok_or(DropReason::Handles)?;
    handles
        .into_iter()
        .map(|handle| lookup(handle).ok_or(DropReason::Handle(handle)))
        .collect()
}
