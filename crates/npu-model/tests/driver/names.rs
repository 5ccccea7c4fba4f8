// SPDX-License-Identifier: MIT OR Apache-2.0
//! GEM names, which are root's.

use npu_model::driver::DriverOptions;
use rustix::io::Errno;

use crate::client::*;
use crate::script::Step;

fn word(arg: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(arg[at..at + 4].try_into().unwrap())
}

impl Client {
    fn flink(&self, handle: u32) -> Result<u32, Errno> {
        let mut arg = [0; 8];
        arg[0..4].copy_from_slice(&handle.to_le_bytes());
        self.raw(GEM_FLINK, &mut arg)?;
        Ok(word(&arg, 4))
    }

    /// Handle and size.
    fn open_name(&self, name: u32) -> Result<(u32, u32), Errno> {
        let mut arg = [0; 16];
        arg[0..4].copy_from_slice(&name.to_le_bytes());
        self.raw(GEM_OPEN, &mut arg)?;
        Ok((word(&arg, 4), word(&arg, 8)))
    }
}

#[test]
fn names_are_for_root() {
    let bench = Bench::new(1);
    let client = bench.client();
    let bo = client.create(4096).unwrap();
    assert_eq!(client.flink(bo.handle), Err(Errno::ACCESS));
    assert_eq!(client.flink(99), Err(Errno::ACCESS));
    assert_eq!(client.open_name(1), Err(Errno::ACCESS));
    let bench = Bench::with_options(
        1,
        DriverOptions {
            privileged: true,
            ..DriverOptions::default()
        },
    );
    let root = npu_model::driver::Driver::open(&bench.driver);
    let mut arg = [0; 8];
    let unknown = root.ioctl(GEM_FLINK, &mut arg, &npu_model::driver::Arena::new());
    assert_eq!(unknown, Err(Errno::NOENT));
}

#[test]
fn a_name_is_the_devices() {
    let bench = Bench::new(1);
    let (client, other) = (bench.client_as(true), bench.client_as(true));
    let (first, second) = (client.create(4096).unwrap(), client.create(5000).unwrap());
    assert_eq!(client.flink(second.handle), Ok(1), "the lowest free");
    assert_eq!(client.flink(first.handle), Ok(2));
    assert_eq!(client.flink(second.handle), Ok(1), "again the same");
    assert_eq!(client.flink(9), Err(Errno::NOENT));
    assert_eq!(other.open_name(3), Err(Errno::NOENT));
    assert_eq!(other.open_name(1), Ok((1, 8192)));
    assert_eq!(other.flink(1), Ok(1));
    assert_eq!(other.open_name(1), Ok((2, 8192)), "each time a new handle");
}

#[test]
fn what_was_opened_can_be_used() {
    let bench = Bench::new(1);
    let (client, other) = (bench.client_as(true), bench.client_as(true));
    let bo = client.create(4096).unwrap();
    let name = client.flink(bo.handle).unwrap();
    let (handle, _) = other.open_name(name).unwrap();
    let write = Step::Write {
        iova: bo.iova,
        value: 7,
    };
    client.run(&[Step::Wait { gate: 1 }, write], &[], &[bo]);
    assert_eq!(other.prep(handle, 0), Err(Errno::BUSY));
    bench.stage.open_gate(1);
    other.prep(handle, FOREVER).unwrap();
    assert_eq!(other.value(Bo { handle, ..bo }), 7);
}

/// A name ends with the last handle, not with the object.
#[test]
fn a_name_ends_with_the_last_handle() {
    let bench = Bench::new(1);
    let (client, other) = (bench.client_as(true), bench.client_as(true));
    let bo = client.create(4096).unwrap();
    let _kept = client.map(bo);
    let name = client.flink(bo.handle).unwrap();
    let (handle, _) = other.open_name(name).unwrap();
    client.close(bo.handle).unwrap();
    assert_eq!(client.open_name(name), Ok((1, 4096)), "the other has one");
    client.close(1).unwrap();
    other.close(handle).unwrap();
    assert_eq!(client.open_name(name), Err(Errno::NOENT));
    let next = client.create(4096).unwrap();
    assert_eq!(client.flink(next.handle), Ok(name), "free again");
    drop(client);
    // Its mapping still holds the file.
    assert_eq!(other.open_name(name).map(|(_, size)| size), Ok(4096));
}

#[test]
fn closing_a_file_ends_its_names() {
    let bench = Bench::new(1);
    let (client, other) = (bench.client_as(true), bench.client_as(true));
    let bo = client.create(4096).unwrap();
    let name = client.flink(bo.handle).unwrap();
    drop(client);
    assert_eq!(other.open_name(name), Err(Errno::NOENT));
}
