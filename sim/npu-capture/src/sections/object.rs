// SPDX-License-Identifier: MIT OR Apache-2.0
//! BOBJ: a buffer object.

use rknpu_regcmd::Iova;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::capture::CapturedObject;
use crate::error::CaptureError;
use crate::fields::Fields;

/// Flag: the NPU has an address for it.
const OBJECT_HAS_ADDRESS: u32 = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ObjectRecord {
    object: U32,
    file: U32,
    handle: U32,
    iova: U32,
    bytes: U64,
    flags: U32,
    reserved: U32,
}

/// The payload for object `number` of the file.
pub(crate) fn encode(number: u32, object: &CapturedObject) -> Vec<u8> {
    let flags = object.iova.map_or(0, |_| OBJECT_HAS_ADDRESS);
    let record = ObjectRecord {
        object: number.into(),
        file: object.file.into(),
        handle: object.handle.into(),
        iova: object.iova.unwrap_or_default().0.into(),
        bytes: object.bytes.into(),
        flags: flags.into(),
        reserved: 0.into(),
    };
    record.as_bytes().to_vec()
}

/// The object in a payload, which must be object `number` of the file.
pub(crate) fn decode(
    mut fields: Fields<'_>,
    number: usize,
) -> Result<CapturedObject, CaptureError> {
    let record: ObjectRecord = fields.record()?;
    let has_address = record.flags.get() & OBJECT_HAS_ADDRESS != 0;
    let object = CapturedObject {
        file: record.file.get(),
        handle: record.handle.get(),
        iova: has_address.then(|| Iova(record.iova.get())),
        bytes: record.bytes.get(),
    };
    if record.object.get() as usize != number {
        return Err(fields.malformed("the objects are not numbered in order"));
    }
    if let Some(why) = object.wrong() {
        return Err(fields.malformed(why));
    }
    fields.finish()?;
    Ok(object)
}
