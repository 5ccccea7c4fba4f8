// SPDX-License-Identifier: MIT OR Apache-2.0
//! DEVI: the device.

use rknpu_regcmd::ChipProfile;
use rocket_uapi::DeviceInfo;
use zerocopy::little_endian::{I32, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::capture::RecordedDevice;
use crate::error::CaptureError;
use crate::fields::{Fields, push_text};

/// Flag: the device is a software model.
const DEVICE_IS_MODEL: u32 = 1;

/// Fixed fields, followed by five texts and `profile` times a text and a U32.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct DeviceRecord {
    flags: U32,
    cores: U32,
    version: [I32; 3],
    profile: U32,
}

/// The payload for a device.
pub(crate) fn encode(info: &DeviceInfo) -> Vec<u8> {
    let chip = ChipProfile::RK3588;
    let profile = [
        ("cores", chip.cores),
        ("cbuf_banks", chip.cbuf_banks),
        ("cbuf_bank_bytes", chip.cbuf_bank_bytes),
        ("weight_banks_min", chip.weight_banks_min),
        ("resident_kernels", chip.resident_kernels),
        ("kernel_bytes_max", chip.kernel_bytes_max),
        ("line_group", chip.line_group),
        ("grains_max", chip.grains_max),
        ("input_channels_max", chip.input_channels_max),
        ("output_channels_max", chip.output_channels_max),
    ];
    let (major, minor, patch) = info.version;
    let flags = if info.is_model { DEVICE_IS_MODEL } else { 0 };
    let record = DeviceRecord {
        flags: flags.into(),
        cores: info.cores.into(),
        version: [major, minor, patch].map(Into::into),
        profile: (profile.len() as u32).into(),
    };
    let mut payload = record.as_bytes().to_vec();
    let recorder = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));
    for text in [&info.name, &info.driver, &info.description] {
        push_text(&mut payload, text);
    }
    push_text(&mut payload, chip.name);
    push_text(&mut payload, recorder);
    for (name, value) in profile {
        push_text(&mut payload, name);
        payload.extend_from_slice(U32::new(value).as_bytes());
    }
    payload
}

/// The device of a payload.
pub(crate) fn decode(mut fields: Fields<'_>) -> Result<RecordedDevice, CaptureError> {
    let record: DeviceRecord = fields.record()?;
    let [name, driver, description, chip, recorder] = [
        fields.text()?,
        fields.text()?,
        fields.text()?,
        fields.text()?,
        fields.text()?,
    ];
    let mut profile = Vec::new();
    for _ in 0..record.profile.get() {
        profile.push((fields.text()?, fields.number()?));
    }
    fields.finish()?;
    let [major, minor, patch] = record.version.map(I32::get);
    Ok(RecordedDevice {
        info: DeviceInfo {
            name,
            driver,
            version: (major, minor, patch),
            description,
            is_model: record.flags.get() & DEVICE_IS_MODEL != 0,
            cores: record.cores.get(),
        },
        chip,
        profile,
        recorder,
    })
}
