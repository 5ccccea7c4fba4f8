// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffer objects: sizes, handles, addresses, mappings.

use npu_model::driver::{Bug, DrmFile};
use npu_model::event::Event;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::client::*;
use crate::script::Step;

const RW: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn map(file: &DrmFile, bo: Bo, len: usize) -> Result<npu_model::driver::Mapping, Errno> {
    file.mmap(bo.offset, len, RW, MapFlags::SHARED)
}

#[test]
#[cfg_attr(miri, ignore = "zeroing 3 MiB of pages takes minutes there")]
fn addresses_offsets_and_handles_of_a_fresh_file() {
    let bench = Bench::new(1);
    let client = bench.client();
    let sizes = [4096, 100, 1, 4097, 8192, 64 << 10, 1 << 20, 2 << 20];
    let bos: Vec<_> = sizes.iter().map(|&s| client.create(s).unwrap()).collect();
    let iovas: Vec<_> = bos.iter().map(|bo| bo.iova).collect();
    assert_eq!(
        iovas,
        [
            0, 0x1000, 0x2000, 0x3000, 0x5000, 0x7000, 0x17000, 0x11_7000
        ]
    );
    let handles: Vec<_> = bos.iter().map(|bo| bo.handle).collect();
    assert_eq!(handles, [1, 2, 3, 4, 5, 6, 7, 8]);
    let offsets: Vec<_> = bos[..5].iter().map(|bo| bo.offset).collect();
    let base = 1u64 << 32;
    assert_eq!(
        offsets,
        [0, 0x1000, 0x2000, 0x3000, 0x5000].map(|page| base + page)
    );

    let other = bench.client();
    let bo = other.create(4096).unwrap();
    assert_eq!(
        (bo.handle, bo.iova),
        (1, 0),
        "handles and addresses are per file"
    );
    assert_eq!(bo.offset, base + 0x31_7000, "offsets are per device");
}

#[test]
fn sizes() {
    let bench = Bench::new(1);
    let client = bench.client();
    assert_eq!(client.create(0), Err(Errno::NOSPC));
    assert_eq!(client.create(1 << 31), Err(Errno::NOMEM));
    assert_eq!(client.create(u32::MAX), Err(Errno::NOMEM));
    let huge = |event: &Event| {
        matches!(
            event,
            Event::KernelBug {
                bug: Bug::HugeBo,
                ..
            }
        )
    };
    let events = bench.driver.events();
    assert!(events.len() == 2 && events.iter().all(huge), "{events:?}");
    assert_eq!(client.0.handles_in_use(), 0);
    if !cfg!(miri) {
        assert_eq!(client.create(1 << 30).unwrap().iova, 0, "1 GiB");
        for _ in 0..3 {
            client.create(1 << 30).unwrap();
        }
        assert_eq!(client.create(1), Err(Errno::NOSPC), "4 GiB are full");
    }
    assert_eq!(bench.client().map_len(4097), 8192);
}

impl Client {
    fn map_len(&self, size: u32) -> usize {
        let bo = self.create(size).unwrap();
        self.map(bo).len()
    }
}

#[test]
fn mmap_errors() {
    let bench = Bench::new(1);
    let client = bench.client();
    let bo = client.create(5000).unwrap();
    let file = &client.0;
    assert_eq!(map(file, bo, 8192).map(|m| m.len()), Ok(8192));
    assert_eq!(map(file, bo, 100).map(|m| m.len()), Ok(100), "partial");
    assert_eq!(map(file, bo, 8193).err(), Some(Errno::INVAL), "longer");
    assert_eq!(map(file, bo, 0).err(), Some(Errno::INVAL));
    assert_eq!(map(file, bo, usize::MAX).err(), Some(Errno::INVAL));
    for offset in [0, bo.offset + 4096, u64::MAX] {
        let at = Bo { offset, ..bo };
        assert_eq!(map(file, at, 4096).err(), Some(Errno::INVAL), "{offset:#x}");
    }
    for prot in [ProtFlags::READ, RW, ProtFlags::READ | ProtFlags::EXEC] {
        assert!(file.mmap(bo.offset, 4096, prot, MapFlags::SHARED).is_ok());
        let private = file.mmap(bo.offset, 4096, prot, MapFlags::PRIVATE);
        assert_eq!(private.err(), Some(Errno::INVAL));
    }
    let other = bench.client();
    assert_eq!(map(&other.0, bo, 4096).err(), Some(Errno::ACCESS));
}

#[test]
fn two_mappings_and_the_npu_see_the_same_bytes() {
    let bench = Bench::new(1);
    let client = bench.client();
    let (a, b) = (client.create(4096).unwrap(), client.create(4096).unwrap());
    let first = map(&client.0, a, 4096).unwrap();
    write(&first, 8, &7u32.to_le_bytes());
    client.run(
        &[Step::Copy {
            from: a.iova + 8,
            to: b.iova,
        }],
        &[a],
        &[b],
    );
    client.prep(b.handle, FOREVER).unwrap();
    assert_eq!(client.value(b), 7);
}

#[test]
fn a_mapping_outlives_handle_and_file() {
    let bench = Bench::new(1);
    let client = bench.client();
    let bo = client.create(4096).unwrap();
    let mapping = map(&client.0, bo, 4096).unwrap();
    write(&mapping, 0, b"kept");
    client.close(bo.handle).unwrap();
    let next = client.create(4096).unwrap();
    assert_eq!(next.handle, bo.handle, "the handle is free");
    assert_ne!(next.iova, bo.iova, "the address is not");
    assert_ne!(next.offset, bo.offset);
    assert_eq!(map(&client.0, bo, 4096).err(), Some(Errno::ACCESS));
    drop(client);
    let mut text = [0; 4];
    read(&mapping, 0, &mut text);
    assert_eq!(&text, b"kept");
    drop(mapping);

    let fresh = bench.client().create(4096).unwrap();
    assert_eq!(fresh.offset, 1 << 32, "all came back");
}
