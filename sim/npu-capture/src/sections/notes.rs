// SPDX-License-Identifier: MIT OR Apache-2.0
//! NOTE: texts about the recording, names and values.

use crate::error::CaptureError;
use crate::fields::{Fields, numbers, push_text};

/// The payload for `notes`.
pub(crate) fn encode(notes: &[(String, String)]) -> Vec<u8> {
    let mut payload = numbers(&[notes.len() as u32]);
    for (name, value) in notes {
        push_text(&mut payload, name);
        push_text(&mut payload, value);
    }
    payload
}

/// The notes in a payload.
pub(crate) fn decode(mut fields: Fields<'_>) -> Result<Vec<(String, String)>, CaptureError> {
    let [count] = fields.numbers()?;
    let mut notes = Vec::new();
    for _ in 0..count {
        notes.push((fields.text()?, fields.text()?));
    }
    fields.finish()?;
    Ok(notes)
}
