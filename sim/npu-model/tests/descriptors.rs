// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model in a process with few descriptors. It has its own process, because
//! it changes the limit.
#![cfg(not(miri))] // needs a limit of descriptors
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::fs::File;

use npu_model::{Model, ModelOptions};
use rocket_uapi::{ByteLen, Deadline, Errno, Error, MapRequest, PAGE_BYTES, sys};

const DESCRIPTORS: u64 = 64;

/// More buffer objects than an ordinary login has descriptors (1,024).
const OBJECTS: usize = 2000;

#[test]
fn buffer_objects_take_no_descriptors() {
    test_support::limit_descriptors(DESCRIPTORS);

    let model = Model::new(ModelOptions::default());
    let device = model.open_device();
    let page = ByteLen::new(PAGE_BYTES).unwrap();
    let mut objects: Vec<_> = (0..OBJECTS).map(|_| device.alloc(page).unwrap()).collect();
    for (index, object) in objects.iter_mut().enumerate() {
        let mut bytes = object.write(Deadline::NOW).unwrap();
        bytes[..8].copy_from_slice(&index.to_le_bytes());
    }

    // Without a free descriptor, a call that needs one fails, and the object
    // stays.
    let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let (error, last) = objects.pop().unwrap().export().unwrap_err();
    assert_eq!(error, Error::OutOfFileDescriptors("PRIME_HANDLE_TO_FD"));
    let raw = model.open_file();
    let mut bo = sys::CreateBo {
        size: 1,
        ..sys::CreateBo::default()
    };
    rocket_uapi::plain_ioctl(&raw, sys::CREATE_BO, &mut bo).unwrap();
    let map = || raw.mmap(&MapRequest::shared(bo.offset, 1));
    assert_eq!(map().err(), Some(Errno::MFILE));

    // It succeeds as soon as two are free: the object's and the dma-buf's.
    taken.truncate(taken.len() - 2);
    let exported = last.export().map_err(|(error, _)| error).unwrap();
    let mut bytes = [0; 8];
    exported.read_into(0, &mut bytes, Deadline::NOW).unwrap();
    assert_eq!(usize::from_le_bytes(bytes), OBJECTS - 1);
    drop((exported, taken));
    map().unwrap();
    for (index, object) in objects.iter().enumerate() {
        let bytes = object.read(Deadline::NOW).unwrap();
        assert_eq!(bytes[..8], index.to_le_bytes());
    }
}
