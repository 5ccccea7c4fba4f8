// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses heads of arbitrary bytes.

use proptest::prelude::*;

use super::*;

/// A head with one value of each kind, and a tensor.
fn small() -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend([1_u64, 4].map(u64::to_le_bytes).concat());
    let mut value = |key: &str, type_id: u32, data: &[u8]| {
        bytes.extend((key.len() as u64).to_le_bytes());
        bytes.extend(key.as_bytes());
        bytes.extend(type_id.to_le_bytes());
        bytes.extend(data);
    };
    value("number", 4, &7_u32.to_le_bytes());
    value("text", 8, b"\x02\0\0\0\0\0\0\0hi");
    value("float", 6, &[0; 4]);
    // An array of two arrays, one byte each.
    let inner = b"\0\0\0\0\x01\0\0\0\0\0\0\0\x05";
    let nested = [b"\x09\0\0\0\x02\0\0\0\0\0\0\0".as_slice(), inner, inner].concat();
    value("array", 9, &nested);
    bytes.extend(b"\x01\0\0\0\0\0\0\0t\x02\0\0\0");
    bytes.extend([64_u64, 3].map(u64::to_le_bytes).concat());
    bytes.extend(8_u32.to_le_bytes());
    bytes.extend([0; 8]);
    bytes
}

/// Reads a head, of a file that is long enough.
fn read(bytes: &[u8]) -> anyhow::Result<GgufModel> {
    GgufModel::of_head(bytes, u64::MAX)
}

#[test]
fn a_head_is_read_to_its_end_and_not_before() {
    let bytes = small();
    let head = read(&bytes).unwrap();
    assert_eq!(head.values["number"], GgufValue::Number(7));
    assert_eq!(head.values["text"], GgufValue::Text("hi".to_owned()));
    assert_eq!(head.values["array"], GgufValue::Other);
    assert_eq!(head.tensors[0].dimensions, [64, 3, 1, 1]);
    let data = (bytes.len() as u64).next_multiple_of(32) + 3 * 68;
    GgufModel::of_head(&*bytes, data).unwrap();
    let cut = GgufModel::of_head(&*bytes, data - 1);
    let cut = cut.unwrap_err().to_string();
    assert!(cut.contains("tensor `t` ends at"), "{cut}");
    for end in 0..bytes.len() {
        let cut = read(&bytes[..end]).unwrap_err().to_string();
        let told = if end < 4 {
            "not a GGUF file"
        } else {
            "the download is incomplete"
        };
        assert!(cut.contains(told), "{end}: {cut}");
    }
}

#[test]
fn errors_name_files_that_are_no_gguf() {
    let with = |at: usize, new: &[u8]| {
        let mut bytes = small();
        bytes[at..at + new.len()].copy_from_slice(new);
        read(&bytes).unwrap_err().to_string()
    };
    assert!(with(0, b"ggml").contains("not a GGUF file"));
    assert!(with(4, &[1]).contains("version 1 is not supported"));
    assert!(with(4, &[0, 0, 0, 3]).contains("big-endian"));
    assert!(with(8, &[0xff; 8]).contains("18446744073709551615 tensors"));
    assert!(with(16, &[0xff; 8]).contains("18446744073709551615 values"));
    assert!(with(24, &[0xff; 8]).contains("bytes of a name"));
    assert!(with(38, &[99]).contains("`number` has type 99"));
    let end = small().len();
    assert!(with(end - 28, &[0]).contains("`t` has an impossible size"));
    assert!(with(end - 28, &[33]).contains("`t` has an impossible size"));
    assert!(with(end - 32, &[5]).contains("`t` has an impossible size"));
    assert!(with(32, b"\x1b").contains("control characters"));
}

proptest! {
    #![proptest_config(test_support::cases(2048))]

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, at in 0..200_usize, version in 2..=3_u8) {
        let _ = read(&bytes);
        let mut damaged = small();
        damaged[4] = version;
        let end = damaged.len();
        let at = at.min(end);
        let new = &bytes[..bytes.len().min(end - at)];
        damaged[at..at + new.len()].copy_from_slice(new);
        if let Ok(head) = read(&damaged) {
            let _: Vec<_> = head.tensors.iter().map(GgufTensor::bytes).collect();
        }
    }
}
