// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs: how SUBMIT reads them from the client's memory, and why the driver
//! drops one without an error.
//!
//! SUBMIT fails only for errors of the whole array. An error in one job only
//! drops that job: the kernel computes an error code and ignores it
//! (rocket_ioctl_submit, Linux 6.18 to 7.3).

use std::sync::Arc;
use std::time::Duration;

use rocket_uapi::{Caller, sys};
use rustix::io::Errno;
use zerocopy::FromBytes;

use crate::base::memory::PAGE_BYTES;
use crate::objects::fence::Fence;
use crate::objects::gem::GemObject;
use crate::objects::iommu::AddressSpace;

/// A job as the client requests it, before it is accepted.
#[derive(Debug)]
pub(crate) struct JobRequest {
    pub(crate) tasks: Vec<sys::Task>,
    pub(crate) reads: Vec<Arc<GemObject>>,
    pub(crate) writes: Vec<Arc<GemObject>>,
}

impl JobRequest {
    /// Records the job's end. The scheduler drops its references later, not at
    /// once.
    pub(crate) fn note_end(&self) {
        for object in self.reads.iter().chain(&self.writes) {
            object.space.life.note_job_end();
        }
    }

    /// Records that the job's outputs have changed behind the CPU's caches, and for how long
    /// the job held its core, in modelled time.
    pub(crate) fn note_writes(&self, core_time: Duration) {
        for object in &self.writes {
            object.note_npu_write(core_time);
        }
    }

    /// Reports bytes that the CPU wrote and the NPU will not see.
    pub(crate) fn check_caches(&self) {
        for object in self.reads.iter().chain(&self.writes) {
            object.check_cache();
        }
    }
}

/// Numbers of accepted jobs, by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Jobs whose fence was signalled without an error.
    pub completed: u64,
    /// Jobs that the driver killed by a reset of their core.
    pub killed: u64,
    /// Jobs that were still queued when their process ended.
    pub lost: u64,
    /// Jobs that have not ended yet.
    pub unfinished: u64,
}

#[derive(Debug)]
pub(crate) struct AcceptedJob {
    /// Number in the order of acceptance on this device, from 1 on.
    pub(crate) id: u64,
    pub(crate) request: JobRequest,
    /// Address space of the file that submitted it.
    pub(crate) space: Arc<AddressSpace>,
    /// Fences that it waits for: of writers of its inputs, and all fences on
    /// its outputs.
    pub(crate) dependencies: Vec<Arc<Fence>>,
    pub(crate) fence: Arc<Fence>,
}

/// Why one job of a SUBMIT does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DropReason {
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
    #[error("handle {0} is not a buffer object of this file (ENOENT)")]
    Handle(u32),
    #[error("a count is larger than the kernel can allocate (ENOMEM)")]
    Count,
    #[error("it lists a buffer object twice, or as read and as written (EALREADY)")]
    Twice,
}

impl DropReason {
    /// Whether the kernel finds this before the job has all that a queued job has.
    pub(crate) const fn is_before_queue(self) -> bool {
        !matches!(self, Self::NoTasks | Self::Twice)
    }

    /// Whether the kernel has freed the task array by itself then.
    pub(crate) const fn frees_tasks(self) -> bool {
        matches!(self, Self::Tasks | Self::NoWords(_))
    }
}

/// Largest allocation of `kvmalloc_array`, bytes: it refuses more than
/// `INT_MAX`.
const KERNEL_ALLOCATION_LIMIT: u64 = i32::MAX as u64;

/// Bytes of the kernel's own entry per task (`struct rocket_task`: the
/// address and the count).
const KERNEL_TASK_BYTES: u64 = 16;

const KERNEL_POINTER_BYTES: u64 = 8;

fn allocation_fails(count: u32, bytes_each: u64) -> bool {
    u64::from(count) * bytes_each > KERNEL_ALLOCATION_LIMIT
}

/// Reads the job array of a SUBMIT.
///
/// # Errors
/// What SUBMIT itself returns: `EINVAL`, `ENOMEM`, `EFAULT`.
pub(crate) fn read_jobs(submit: &sys::Submit, user: &dyn Caller) -> Result<Vec<sys::Job>, Errno> {
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

/// Maximum number of bytes copied from the client at once.
const COPY_BYTES: usize = 64 << 10;

/// Reads an array whose entries are `stride` bytes apart; `None` if one of them
/// is not readable.
///
/// Memory is allocated as reading proceeds, not from `count`, which the client
/// chooses. If the count is wrong, reading mostly ends early at an unmapped
/// page.
fn read_array<T: FromBytes>(
    user: &dyn Caller,
    array: u64,
    stride: u32,
    count: u32,
) -> Option<Vec<T>> {
    let stride = stride as usize;
    // With such a stride each page of the span holds part of an entry. So
    // reading the gaps too fails only if reading the entries fails.
    let chunk_entries = if stride <= PAGE_BYTES {
        COPY_BYTES / stride.max(1)
    } else {
        1
    };
    let mut entries = Vec::new();
    let mut chunk = Vec::new();
    let mut left = count as usize;
    let mut at = array;
    while left > 0 {
        let now = left.min(chunk_entries);
        // The tail of the last entry need not exist.
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

/// Reads the arrays that one job points to and looks up its handles.
///
/// # Errors
/// Why the job is dropped. The checks are in the kernel's order.
pub(crate) fn read_job(
    job: &sys::Job,
    user: &dyn Caller,
    lookup: &dyn Fn(u32) -> Option<Arc<GemObject>>,
) -> Result<JobRequest, DropReason> {
    let request = JobRequest {
        tasks: read_tasks(job, user)?,
        reads: read_handles(job.in_bo_handles, job.in_bo_handle_count, user, lookup)?,
        writes: read_handles(job.out_bo_handles, job.out_bo_handle_count, user, lookup)?,
    };
    // The kernel locks the reservations of both lists together. If one is
    // already locked, it drops the job.
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

fn read_tasks(job: &sys::Job, user: &dyn Caller) -> Result<Vec<sys::Task>, DropReason> {
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
    Ok(tasks)
}

fn read_handles(
    array: u64,
    count: u32,
    user: &dyn Caller,
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
