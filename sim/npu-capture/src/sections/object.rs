// SPDX-License-Identifier: MIT OR Apache-2.0
//! BOBJ: a buffer object.

use rknpu_regcmd::Iova;

use crate::capture::CapturedObject;
use crate::error::CaptureError;
use crate::fields::{Fields, RESERVED, halves, joined, numbers};

/// Flag: the NPU has an address for it.
const HAS_ADDRESS: u32 = 1;

/// The payload for object `number` of the file.
pub(crate) fn encode(number: u32, object: &CapturedObject) -> Vec<u8> {
    let flags = object.iova.map_or(0, |_| HAS_ADDRESS);
    let iova = object.iova.unwrap_or_default().0;
    let [low, high] = halves(object.bytes);
    let (file, handle) = (object.file, object.handle);
    numbers(&[number, file, handle, iova, low, high, flags, RESERVED])
}

/// The object in a payload, which must be object `number` of the file.
pub(crate) fn decode(
    mut fields: Fields<'_>,
    number: usize,
) -> Result<CapturedObject, CaptureError> {
    let [found, file, handle, iova, low, high, flags, _reserved] = fields.numbers()?;
    if found as usize != number {
        return Err(fields.malformed("the objects are not numbered in order"));
    }
    let object = CapturedObject {
        file,
        handle,
        iova: (flags & HAS_ADDRESS != 0).then_some(Iova(iova)),
        bytes: joined(low, high),
    };
    if let Some(why) = object.wrong() {
        return Err(fields.malformed(why));
    }
    fields.finish()?;
    Ok(object)
}
