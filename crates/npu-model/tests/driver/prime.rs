// SPDX-License-Identifier: MIT OR Apache-2.0
//! dma-bufs.

#![cfg(not(miri))]

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use crate::client::*;

const O_RDWR: u32 = 2;

fn export(client: &Client, handle: u32, flags: u32) -> Result<OwnedFd, Errno> {
    let mut arg = [0xff; 12];
    arg[0..4].copy_from_slice(&handle.to_le_bytes());
    arg[4..8].copy_from_slice(&flags.to_le_bytes());
    client.raw(HANDLE_TO_FD, &mut arg)?;
    let fd = i32::from_le_bytes(arg[8..12].try_into().unwrap());
    // SAFETY: the call has just made this descriptor and gave it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn import(client: &Client, fd: i32) -> Result<u32, Errno> {
    let mut arg = [0; 12];
    arg[8..12].copy_from_slice(&fd.to_le_bytes());
    client.raw(FD_TO_HANDLE, &mut arg)?;
    Ok(u32::from_le_bytes(arg[0..4].try_into().unwrap()))
}

#[test]
fn foreign_files_are_refused() {
    let bench = Bench::new(1);
    let client = bench.client();
    for fd in [-1, i32::MAX] {
        assert_eq!(import(&client, fd), Err(Errno::BADF));
    }
    let null = File::open("/dev/null").unwrap();
    assert_eq!(import(&client, null.as_raw_fd()), Err(Errno::INVAL));
    let elsewhere = Bench::new(1);
    let stranger = elsewhere.client();
    let bo = stranger.create(1).unwrap();
    let dma_buf = export(&stranger, bo.handle, O_RDWR).unwrap();
    assert_eq!(import(&client, dma_buf.as_raw_fd()), Err(Errno::INVAL));
}

#[test]
fn a_dma_buf_keeps_its_object_until_its_last_descriptor_closes() {
    let bench = Bench::new(1);
    let client = bench.client();
    let bo = client.create(4096).unwrap();
    write(&client.map(bo), 0, b"data");
    let dma_buf = export(&client, bo.handle, O_RDWR).unwrap();
    let copy = dma_buf.try_clone().unwrap();
    client.close(bo.handle).unwrap();
    drop(dma_buf);
    assert_ne!(client.create(4096).unwrap().iova, bo.iova, "still taken");
    let handle = import(&client, copy.as_raw_fd()).unwrap();
    let again = Bo { handle, ..bo };
    let mut text = [0; 4];
    read(&client.map(again), 0, &mut text);
    assert_eq!(&text, b"data");
    client.close(handle).unwrap();
    drop(copy);
    assert_eq!(client.create(4096).unwrap().iova, bo.iova, "now it is free");
}

#[test]
fn an_exported_file_cannot_be_cut_below_the_mapping() {
    let bench = Bench::new(1);
    let client = bench.client();
    let bo = client.create(4096).unwrap();
    let dma_buf = export(&client, bo.handle, O_RDWR).unwrap();
    assert_eq!(rustix::fs::ftruncate(&dma_buf, 0), Err(Errno::PERM));
}
