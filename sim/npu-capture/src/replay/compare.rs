// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the contents of objects after a replay with the recorded ones.

use half::{bf16, f16};
use rknpu_regcmd::{Precision, written_element};

use super::report::{ByteDifference, ContentsComparison, ElementDifference};
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
        let bytes = expected.iter().zip(piece).enumerate();
        for (at, (&recorded, &replayed)) in bytes.filter(|(_, (then, now))| then != now) {
            comparison.different += 1;
            let offset = offset + at as u64;
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
    Ok(())
}

/// The element at `difference`, with its recorded and replayed value. The last program of
/// `job` that writes there decides, by the contents before the job. `now` are the bytes of
/// the object.
pub(super) fn element(
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
