// SPDX-License-Identifier: MIT OR Apache-2.0
//! JOBS: a job, as it was submitted.

use rknpu_regcmd::Iova;
use rocket_uapi::RawTask;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::capture::{CapturedJob, CapturedObject, ObjectUse, Role};
use crate::error::{CaptureError, RecordError};
use crate::fields::Fields;

/// Maximum number of programs of a job (docs/capture.md).
const TASKS_MAX: u32 = 1 << 16;
/// Maximum number of entries of a job's lists together (docs/capture.md).
const USES_MAX: u32 = 1 << 17;
/// The number that means no object.
const NO_OBJECT: u32 = u32::MAX;

/// Fixed fields, followed by `tasks` times [`TaskRecord`] and `bos` times
/// [`UseRecord`].
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct JobRecord {
    job: U32,
    file: U32,
    started_ns: U64,
    tasks: U32,
    bos: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TaskRecord {
    regcmd: U32,
    words: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct UseRecord {
    handle: U32,
    object: U32,
    role: U32,
}

/// The payload for job `number` of the file.
pub(crate) fn encode(number: u32, job: &CapturedJob) -> Result<Vec<u8>, RecordError> {
    if job.tasks.len() > TASKS_MAX as usize || job.uses.len() > USES_MAX as usize {
        let what = "a job has too many programs or objects";
        return Err(RecordError::Full { what });
    }
    let record = JobRecord {
        job: number.into(),
        file: job.file.into(),
        started_ns: job.started_ns.into(),
        tasks: (job.tasks.len() as u32).into(),
        bos: (job.uses.len() as u32).into(),
    };
    let mut payload = record.as_bytes().to_vec();
    for task in &job.tasks {
        let task = TaskRecord {
            regcmd: task.regcmd.0.into(),
            words: task.words.into(),
        };
        payload.extend_from_slice(task.as_bytes());
    }
    for used in &job.uses {
        let used = UseRecord {
            handle: used.handle.into(),
            object: used.object.map_or(NO_OBJECT, |object| object as u32).into(),
            role: encode_role(used.role).into(),
        };
        payload.extend_from_slice(used.as_bytes());
    }
    Ok(payload)
}

/// The job in a payload, which must be job `number` of the file. It may use `objects`.
pub(crate) fn decode(
    mut fields: Fields<'_>,
    number: usize,
    objects: &[CapturedObject],
) -> Result<CapturedJob, CaptureError> {
    let record: JobRecord = fields.record()?;
    if record.job.get() as usize != number {
        return Err(fields.malformed("the jobs are not numbered in order"));
    }
    if record.tasks.get() > TASKS_MAX || record.bos.get() > USES_MAX {
        return Err(fields.malformed("the job exceeds the maximum number of programs or objects"));
    }
    let tasks = fields.records::<TaskRecord>(record.tasks.get())?;
    let tasks = tasks.iter().map(|task| RawTask {
        regcmd: Iova(task.regcmd.get()),
        words: task.words.get(),
    });
    let file = record.file.get();
    let mut uses = Vec::new();
    for used in fields.records::<UseRecord>(record.bos.get())? {
        let object = match used.object.get() {
            NO_OBJECT => None,
            index => match objects.get(index as usize) {
                Some(object) if object.file == file => Some(index as usize),
                _ => return Err(fields.malformed("a list names an unknown object")),
            },
        };
        let role = decode_role(used.role.get())
            .ok_or_else(|| fields.malformed("a list has an unknown kind"))?;
        uses.push(ObjectUse {
            handle: used.handle.get(),
            object,
            role,
        });
    }
    fields.finish()?;
    let started_ns = record.started_ns.get();
    Ok(CapturedJob::new(file, started_ns, tasks.collect(), uses))
}

/// The number of a role in the file.
fn encode_role(role: Role) -> u32 {
    match role {
        Role::In => 0,
        Role::Out => 1,
        Role::Reached => 2,
    }
}

/// The role for a number.
fn decode_role(code: u32) -> Option<Role> {
    let roles = [Role::In, Role::Out, Role::Reached];
    roles.into_iter().find(|&role| encode_role(role) == code)
}
