// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the contents of objects after a replay with the recorded ones.

use half::{bf16, f16};
use rknpu_regcmd::{Precision, WrittenElement, written_element};

use super::report::{ByteDifference, ContentsComparison, ElementDifference, Value};
use crate::capture::{Capture, CapturedJob};
use crate::contents::Contents;
use crate::error::CaptureError;

/// Bytes that are compared at a time.
pub(super) const PIECE: usize = 1 << 20;

/// Compares `now`, the bytes of an object, with `contents`.
pub(super) fn object(
    comparison: &mut ContentsComparison,
    contents: &Contents<'_>,
    object: usize,
    start: u64,
    now: &[u8],
) -> Result<(), CaptureError> {
    let mut expected = vec![0; PIECE.min(now.len())];
    for (index, piece) in now.chunks(PIECE).enumerate() {
        let offset = index as u64 * PIECE as u64;
        let expected = &mut expected[..piece.len()];
        contents.read(object, offset, expected)?;
        comparison.bytes += piece.len() as u64;
        if piece == expected {
            continue;
        }
        let mut differing = expected.iter().zip(piece).enumerate();
        let mut differing = differing.by_ref().filter(|(_, (then, now))| then != now);
        if comparison.first.is_none()
            && let Some((at, (&recorded, &replayed))) = differing.next()
        {
            let offset = offset + at as u64;
            comparison.different += 1;
            comparison.first = Some(ByteDifference {
                object,
                offset,
                iova: start + offset,
                recorded,
                replayed,
                place: None,
            });
        }
        comparison.different += differing.count() as u64;
    }
    Ok(())
}

/// The element at `difference`, and the index of the program that writes it, by the
/// programs in `before`.
pub(super) fn place(
    capture: &Capture,
    job: &CapturedJob,
    before: &Contents<'_>,
    difference: &ByteDifference,
) -> Option<(usize, WrittenElement)> {
    // The last program that writes there decides.
    let mut found = None;
    for program in capture.programs(job, before) {
        for task in program.tasks() {
            if let Some(element) = written_element(&task.regs, task.enable, difference.iova) {
                found = Some((program.index, element));
            }
        }
    }
    found
}

/// The place of a difference with the recorded and the replayed value.
pub(super) fn valued(
    (program, element): (usize, WrittenElement),
    difference: &ByteDifference,
    after: &Contents<'_>,
    now: &[u8],
) -> Option<ElementDifference> {
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

fn value(ty: Precision, bytes: &[u8]) -> Option<Value> {
    Some(match ty {
        Precision::Int8 => Value::Integer(i8::from_le_bytes(bytes.try_into().ok()?).into()),
        Precision::Int16 => Value::Integer(i16::from_le_bytes(bytes.try_into().ok()?).into()),
        Precision::Int32 => Value::Integer(i32::from_le_bytes(bytes.try_into().ok()?)),
        Precision::Fp16 => Value::Float(f16::from_le_bytes(bytes.try_into().ok()?).to_f32()),
        Precision::Bf16 => Value::Float(bf16::from_le_bytes(bytes.try_into().ok()?).to_f32()),
        Precision::Fp32 => Value::Float(f32::from_le_bytes(bytes.try_into().ok()?)),
        // No output has these precisions.
        Precision::Int4 | Precision::Tf32 => return None,
    })
}
