// SPDX-License-Identifier: MIT OR Apache-2.0
//! Driver and chip together, through the calls that clients use.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic)]

mod matmul;
mod timeline;

use npu_model::{Model, ModelOptions};
use rocket_uapi::{ByteLen, DeviceInfo, Error, PAGE_BYTES};

#[test]
fn the_model_says_what_it_is() {
    let expected = DeviceInfo {
        name: "software model".into(),
        driver: drm::Driver {
            version: (0, 0, 0),
            name: "rocket".into(),
            date: "0".into(),
            desc: "rocket DRM".into(),
        },
        is_model: true,
        cores: 3,
    };
    let device = Model::new(ModelOptions::default()).open_device();
    assert_eq!(device.info(), expected);
    let create = |len| device.alloc(ByteLen::new(len).unwrap());
    let large = ByteLen::MAX.get();
    let bos = [large, large, 4096, 4096].map(|len| create(len).unwrap());
    let len = ByteLen::new(PAGE_BYTES).unwrap();
    assert_eq!(create(1).unwrap_err(), Error::OutOfMemory(len));
    drop(bos);
}
