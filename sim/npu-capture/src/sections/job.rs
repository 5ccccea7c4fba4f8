// SPDX-License-Identifier: MIT OR Apache-2.0
//! JOBS: a job, as it was submitted.

use rocket_uapi::sys;

use crate::capture::{CapturedJob, CapturedObject, ObjectUse, Role};
use crate::error::{CaptureError, RecordError};
use crate::fields::{Fields, halves, joined, numbers};

/// Maximum number of programs of a job (docs/capture.md).
const TASKS_MAX: u32 = 1 << 16;
/// Maximum number of entries of a job's lists together (docs/capture.md).
const USES_MAX: u32 = 1 << 17;
/// The number that means no object.
const NO_OBJECT: u32 = u32::MAX;
/// The roles. The index of a role is its number in the file.
const ROLES: [Role; 3] = [Role::In, Role::Out, Role::Reached];

/// The payload for job `number` of the file.
pub(crate) fn encode(number: u32, job: &CapturedJob) -> Result<Vec<u8>, RecordError> {
    if job.tasks.len() > TASKS_MAX as usize || job.uses.len() > USES_MAX as usize {
        let what = "a job has too many programs or objects";
        return Err(RecordError::Full { what });
    }
    let (tasks, uses) = (job.tasks.len() as u32, job.uses.len() as u32);
    let [low, high] = halves(job.started_ns);
    let mut payload = numbers(&[number, job.file, low, high, tasks, uses]);
    for task in &job.tasks {
        payload.extend(numbers(&[task.regcmd, task.regcmd_count]));
    }
    for used in &job.uses {
        let object = used.object.map_or(NO_OBJECT, |object| object as u32);
        payload.extend(numbers(&[used.handle, object, used.role as u32]));
    }
    Ok(payload)
}

/// The job in a payload, which must be job `number` of the file. It may use `objects`.
pub(crate) fn decode(
    mut fields: Fields<'_>,
    number: usize,
    objects: &[CapturedObject],
) -> Result<CapturedJob, CaptureError> {
    let [found, file, low, high, tasks, uses] = fields.numbers()?;
    if found as usize != number {
        return Err(fields.malformed("the jobs are not numbered in order"));
    }
    if tasks > TASKS_MAX || uses > USES_MAX {
        return Err(fields.malformed("the job exceeds the maximum number of programs or objects"));
    }
    let tasks = fields.rows(tasks)?.map(|[regcmd, regcmd_count]| sys::Task {
        regcmd,
        regcmd_count,
    });
    let mut list = Vec::new();
    for [handle, object, role] in fields.rows(uses)? {
        let object = match object {
            NO_OBJECT => None,
            index => match objects.get(index as usize) {
                Some(object) if object.file == file => Some(index as usize),
                _ => return Err(fields.malformed("a list names an unknown object")),
            },
        };
        let role = ROLES.get(role as usize).copied();
        list.push(ObjectUse {
            handle,
            object,
            role: role.ok_or_else(|| fields.malformed("a list has an unknown kind"))?,
        });
    }
    fields.finish()?;
    let started_ns = joined(low, high);
    Ok(CapturedJob::new(file, started_ns, tasks.collect(), list))
}
