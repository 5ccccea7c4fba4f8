// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the contents of objects after a replay with the recorded ones.

use std::collections::BTreeMap;

use half::{bf16, f16};
use rknpu_regcmd::{Precision, written_element};
use rocket_uapi::{Bo, Deadline};

use super::error::ReplayError;
use super::place::WAIT;
use super::report::{ByteDifference, ContentsComparison, ElementDifference};
use crate::capture::{Capture, CapturedJob};
use crate::contents::Contents;

/// Bytes that are compared at a time.
const PIECE: usize = 1 << 20;

/// Compares the bytes of `bos`, the objects of `job` after its replay, with the recorded
/// contents after it.
pub(super) fn contents(
    capture: &Capture,
    job: &CapturedJob,
    moments @ [_, after]: [&Contents<'_>; 2],
    bos: &BTreeMap<usize, Bo>,
) -> Result<ContentsComparison, ReplayError> {
    let mut comparison = ContentsComparison::default();
    let mut expected = vec![0; PIECE];
    for (&object, bo) in bos {
        let start = u64::from(bo.iova().0);
        let now = bo.read(Deadline::after(WAIT))?;
        for (offset, piece) in (0..).step_by(PIECE).zip(now.chunks(PIECE)) {
            let expected = &mut expected[..piece.len()];
            after.read(object, offset, expected)?;
            comparison.bytes += piece.len() as u64;
            if piece == expected {
                continue;
            }
            let bytes = (offset..).zip(expected.iter().zip(piece));
            for (offset, (&recorded, &replayed)) in bytes.filter(|(_, (then, now))| then != now) {
                comparison.different += 1;
                comparison.first.get_or_insert(ByteDifference {
                    object,
                    offset,
                    iova: start + offset,
                    recorded,
                    replayed,
                    place: None,
                });
            }
        }
        let first = comparison.first.as_mut();
        if let Some(first) = first.filter(|first| first.object == object) {
            first.place = element(capture, job, moments, first, &now);
        }
    }
    Ok(comparison)
}

/// The element at `difference`, with its recorded and replayed value. The last program of
/// `job` that writes there decides, by the contents before the job. `now` are the bytes of
/// the object.
fn element(
    capture: &Capture,
    job: &CapturedJob,
    [before, after]: [&Contents<'_>; 2],
    difference: &ByteDifference,
    now: &[u8],
) -> Option<ElementDifference> {
    let mut found = None;
    for program in capture.programs(job, before) {
        for task in program.tasks() {
            if let Some(element) = written_element(&task.regs, task.enable, difference.iova) {
                found = Some((program.index, element));
            }
        }
    }
    let (program, element) = found?;
    let start = difference.offset.checked_sub(element.byte.into())?;
    let len = element.ty.bytes(1) as usize;
    let mut then = [0; 4];
    after
        .read(difference.object, start, &mut then[..len])
        .ok()?;
    let start = usize::try_from(start).ok()?;
    let now = now.get(start..start + len)?;
    Some(ElementDifference {
        program,
        element,
        recorded: value(element.ty, &then[..len])?,
        replayed: value(element.ty, now)?,
    })
}

/// The value of an element as text. No output has the precisions without one.
fn value(ty: Precision, bytes: &[u8]) -> Option<String> {
    let float = |value: f32| format!("{value:e}");
    Some(match ty {
        Precision::Int8 => i8::from_le_bytes(bytes.try_into().ok()?).to_string(),
        Precision::Int16 => i16::from_le_bytes(bytes.try_into().ok()?).to_string(),
        Precision::Int32 => i32::from_le_bytes(bytes.try_into().ok()?).to_string(),
        Precision::Fp16 => float(f16::from_le_bytes(bytes.try_into().ok()?).to_f32()),
        Precision::Bf16 => float(bf16::from_le_bytes(bytes.try_into().ok()?).to_f32()),
        Precision::Fp32 => float(f32::from_le_bytes(bytes.try_into().ok()?)),
        Precision::Int4 | Precision::Tf32 => return None,
    })
}
