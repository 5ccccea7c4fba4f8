// SPDX-License-Identifier: MIT OR Apache-2.0
//! Callers in other processes: what they map, and what interrupts them.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::thread;

use npu_model::driver::{Caller, Wake};
use rocket_uapi::{MapRequest, sys};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::client::{Bench, Bo, Client, FOREVER, bench_and_client};
use crate::script::Step;

fn map(client: &Client, bo: Bo, len: usize) -> OwnedFd {
    let file = client.file.mmap_file(&MapRequest::shared(bo.offset, len));
    file.unwrap()
}

#[test]
fn a_file_to_map_keeps_object_and_address() {
    let (_bench, client) = bench_and_client();
    let bo = client.page();
    let next = || client.page().dma_address;
    let (first, second) = (map(&client, bo, 4096), File::from(map(&client, bo, 100)));
    let copy = File::from(first.try_clone().unwrap());
    copy.write_all_at(b"abc", 0).unwrap();
    drop(copy);
    client.close(bo.handle).unwrap();
    assert_ne!(next(), bo.dma_address, "still mapped");
    drop(first);
    assert_ne!(next(), bo.dma_address, "still mapped once");
    let mut bytes = [0; 3];
    second.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"abc");
    drop(second);
    assert_eq!(next(), bo.dma_address, "free again");
}

/// After a client has unmapped and closed an object, its address is free for
/// the next object, whichever thread collects.
#[test]
fn addresses_are_free_again_whoever_collects() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 300;
    let bench = Bench::new(1);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let client = bench.client();
                for round in 0..ROUNDS {
                    let bo = client.page();
                    assert_eq!(bo.dma_address, 0, "round {round}");
                    drop(map(&client, bo, 4096));
                    client.close(bo.handle).unwrap();
                }
            });
        }
    });
}

/// A caller that is interrupted when its descriptor can be read, or at once.
struct Remote(Option<OwnedFd>);

impl Caller for Remote {
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::FAULT)
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::FAULT)
    }

    fn wake(&self) -> Wake<'_> {
        match &self.0 {
            Some(file) => Wake::Readable(file.as_fd()),
            None => Wake::Now,
        }
    }
}

#[test]
fn a_wait_ends_when_its_caller_says_so() {
    let (bench, client) = bench_and_client();
    let bo = client.page();
    client.run(&[Step::Wait(1)], &[], &[bo]);
    let prep = |interrupt: Option<OwnedFd>| {
        let mut arg = [u64::from(bo.handle), FOREVER.cast_unsigned()];
        let (arg, caller) = (arg.as_mut_bytes(), Remote(interrupt));
        client.file.ioctl(sys::PREP_BO, arg, &caller)
    };
    assert_eq!(prep(None), Err(Errno::INTR), "interrupted before");
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| prep(Some(reader)));
        // A caller that is gone has hung up.
        drop(writer);
        assert_eq!(waiting.join().unwrap(), Err(Errno::INTR));
    });
    bench.stage.open_gate(1);
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    assert_eq!(prep(Some(reader)), Ok(0));
}
