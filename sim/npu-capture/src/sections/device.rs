// SPDX-License-Identifier: MIT OR Apache-2.0
//! DEVI: the device.

use std::ffi::OsString;

use drm::Driver;
use rknpu_regcmd::ChipProfile;
use rocket_uapi::DeviceInfo;

use crate::capture::RecordedDevice;
use crate::error::CaptureError;
use crate::fields::{Fields, numbers, push_text};

/// Flag: the device is a software model.
const DEVICE_IS_MODEL: u32 = 1;

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
    let (major, minor, patch) = info.driver.version;
    let [major, minor, patch] = [major, minor, patch].map(i32::cast_unsigned);
    let flags = if info.is_model { DEVICE_IS_MODEL } else { 0 };
    let entries = profile.len() as u32;
    let mut payload = numbers(&[flags, info.cores, major, minor, patch, entries]);
    let recorder = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));
    push_text(&mut payload, &info.name);
    for text in [&info.driver.name, &info.driver.desc] {
        push_text(&mut payload, &text.to_string_lossy());
    }
    push_text(&mut payload, chip.name);
    push_text(&mut payload, recorder);
    for (name, value) in profile {
        push_text(&mut payload, name);
        payload.extend(numbers(&[value]));
    }
    payload
}

/// The device of a payload.
pub(crate) fn decode(mut fields: Fields<'_>) -> Result<RecordedDevice, CaptureError> {
    let [flags, cores, major, minor, patch, entries] = fields.numbers()?;
    let [major, minor, patch] = [major, minor, patch].map(u32::cast_signed);
    let info = DeviceInfo {
        name: fields.text()?,
        driver: Driver {
            version: (major, minor, patch),
            name: fields.text()?.into(),
            // Not in the file.
            date: OsString::new(),
            desc: fields.text()?.into(),
        },
        is_model: flags & DEVICE_IS_MODEL != 0,
        cores,
    };
    let (chip, recorder) = (fields.text()?, fields.text()?);
    let mut profile = Vec::new();
    for _ in 0..entries {
        let name = fields.text()?;
        let [value] = fields.numbers()?;
        profile.push((name, value));
    }
    fields.finish()?;
    Ok(RecordedDevice {
        info,
        chip,
        profile,
        recorder,
    })
}
