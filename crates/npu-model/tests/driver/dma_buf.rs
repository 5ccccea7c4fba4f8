// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the file of a dma-buf answers, and what a job waits for because of it.

#![cfg(not(miri))]

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use npu_model::driver::{Arena, SharedFile};
use rustix::event::PollFlags;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::client::*;
use crate::script::Step;
use crate::shared::*;

fn shared(client: &Client, bytes: u32) -> (Bo, OwnedFd) {
    let bo = client.create(bytes).unwrap();
    (bo, client.0.prime_export(bo.handle).unwrap())
}

/// Submits a job that waits at its gate, and logs the gate's number.
fn gated(client: &Client, gate: u32, reads: &[Bo], writes: &[Bo]) {
    client.run(
        &[Step::Wait { gate }, Step::Log { number: gate }],
        reads,
        writes,
    );
}

fn log(client: &Client, number: u32, reads: &[Bo], writes: &[Bo]) {
    client.run(&[Step::Log { number }], reads, writes);
}

fn order(bench: &Bench) -> Vec<u32> {
    bench
        .stage
        .log()
        .iter()
        .map(|&(number, _)| number)
        .collect()
}

#[test]
fn other_descriptors_are_not_the_models() {
    assert_eq!(SharedFile::of(-1).err(), Some(Errno::BADF));
    assert_eq!(SharedFile::of(i32::MAX).err(), Some(Errno::BADF));
    let null = File::open("/dev/null").unwrap();
    assert!(SharedFile::of(null.as_raw_fd()).unwrap().is_none());
    let (_, socket) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    assert!(SharedFile::of(socket.as_raw_fd()).unwrap().is_none());
}

#[test]
fn flags_requests_and_addresses_are_checked() {
    let bench = Bench::new(1);
    let client = bench.client();
    let (_, dma_buf) = shared(&client, 1);
    for flags in [0, 4, 8, 1 | 8, 1 << 32 | 1, u64::MAX] {
        assert_eq!(sync(&dma_buf, flags), Err(Errno::INVAL), "{flags:#x}");
    }
    for flags in [1, 2, 3, 5, 6, 7] {
        assert_eq!(sync(&dma_buf, flags), Ok(()), "{flags:#x}");
    }
    let fence = export_fence(&dma_buf, READ).unwrap();
    for flags in [0, 4, READ | 4, u32::MAX] {
        assert_eq!(export_fence(&dma_buf, flags).err(), Some(Errno::INVAL));
        let imported = import_fence(&dma_buf, flags, fence.as_raw_fd());
        assert_eq!(imported, Err(Errno::INVAL));
    }
    for flags in [READ, WRITE, READ | WRITE] {
        export_fence(&dma_buf, flags).unwrap();
        import_fence(&dma_buf, flags, fence.as_raw_fd()).unwrap();
    }
    let null = File::open("/dev/null").unwrap();
    for fd in [-1, i32::MAX, null.as_raw_fd(), dma_buf.as_raw_fd()] {
        assert_eq!(import_fence(&dma_buf, READ, fd), Err(Errno::INVAL));
    }
    // Whole request numbers count: another size is another request.
    for request in [
        0x4004_6200,
        0x4008_6202,
        0xc008_6203,
        0x4008_6204,
        FILE_INFO,
    ] {
        assert_eq!(ioctl(&dma_buf, request, &[0; 64]).err(), Some(Errno::NOTTY));
    }
    for request in [DMA_BUF_SYNC, SET_NAME_B, EXPORT_SYNC_FILE, IMPORT_SYNC_FILE] {
        let answer = file(&dma_buf).ioctl(request, 0, &Arena::new());
        assert_eq!(answer, Err(Errno::FAULT), "{request:#x}");
    }
}

#[test]
fn names_have_at_most_31_bytes() {
    let bench = Bench::new(1);
    let client = bench.client();
    let (_, dma_buf) = shared(&client, 1);
    for request in [SET_NAME_A, SET_NAME_B] {
        let name = |len: usize| [vec![b'x'; len], vec![0; 8]].concat();
        for len in [0, 1, 31] {
            assert!(ioctl(&dma_buf, request, &name(len)).is_ok(), "{len}");
        }
        assert_eq!(
            ioctl(&dma_buf, request, &name(32)).err(),
            Some(Errno::INVAL)
        );
        // No terminator before the end of memory.
        assert_eq!(ioctl(&dma_buf, request, b"abc").err(), Some(Errno::FAULT));
    }
}

#[test]
fn its_size_is_at_its_end_and_mappings_stay_within() {
    let bench = Bench::new(1);
    let client = bench.client();
    let (bo, dma_buf) = shared(&client, 4097);
    let file = file(&dma_buf);
    assert_eq!(file.seek(SeekFrom::End(0)), Ok(8192));
    assert_eq!(file.seek(SeekFrom::Start(0)), Ok(0));
    for wrong in [SeekFrom::Current(0), SeekFrom::End(-1), SeekFrom::Start(1)] {
        assert_eq!(file.seek(wrong), Err(Errno::INVAL));
    }
    write(&client.map(bo), 0, b"data");
    let map = |offset, len, flags| file.mmap(offset, len, ProtFlags::READ, flags);
    let whole = map(0, 8192, MapFlags::SHARED).unwrap();
    let mut text = [0; 4];
    read(&whole, 0, &mut text);
    assert_eq!(&text, b"data");
    assert!(map(4096, 4096, MapFlags::SHARED).is_ok());
    for (offset, len) in [
        (0, 8193),
        (4096, 4097),
        (8192, 1),
        (1, 1),
        (0, 0),
        (u64::MAX - 4095, 4096),
    ] {
        let refused = map(offset, len, MapFlags::SHARED);
        assert_eq!(refused.err(), Some(Errno::INVAL), "{offset} {len}");
    }
    assert_eq!(map(0, 4096, MapFlags::PRIVATE).err(), Some(Errno::INVAL));
}

#[test]
fn readers_wait_for_writers_only() {
    let bench = Bench::new(1);
    let client = bench.client();
    let (bo, dma_buf) = shared(&client, 1);
    let both = PollFlags::IN | PollFlags::OUT;
    assert_eq!(file(&dma_buf).poll(both), both);
    gated(&client, 1, &[], &[bo]);
    assert_eq!(file(&dma_buf).poll(both), PollFlags::empty());
    let of_writers = export_fence(&dma_buf, READ).unwrap();
    let (other, other_dma_buf) = shared(&client, 1);
    import_fence(&other_dma_buf, READ, of_writers.as_raw_fd()).unwrap();
    assert_eq!(file(&other_dma_buf).poll(both), PollFlags::IN);
    assert_eq!(
        file(&other_dma_buf).poll(PollFlags::OUT),
        PollFlags::empty()
    );
    assert_eq!(sync(&other_dma_buf, 1), Ok(()), "a reader need not wait");
    assert_eq!(sync(&other_dma_buf, 2 | 4), Ok(()), "the end of an access");
    assert_eq!(client.prep(other.handle, 0), Ok(()), "PREP_BO neither");
    assert!(readable(
        &export_fence(&other_dma_buf, READ).unwrap(),
        AT_ONCE
    ));
    let of_all = export_fence(&other_dma_buf, WRITE).unwrap();
    assert!(!readable(&of_all, AT_ONCE));
    std::thread::scope(|scope| {
        let waiters = [
            scope.spawn(|| sync(&dma_buf, 1)),
            scope.spawn(|| sync(&other_dma_buf, 3)),
        ];
        bench.stage.await_arrival(1);
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        bench.stage.open_gate(1);
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
    });
    assert!(readable(&of_all, None));
    assert_eq!(file(&other_dma_buf).poll(both), both);
}

/// Two files of one device share an object; a job of the first reads it, and
/// the second's job that writes it would not wait: until the client says so.
#[test]
fn an_imported_read_fence_orders_write_after_read() {
    let bench = Bench::new(2);
    let (reader, writer) = (bench.client(), bench.client());
    let (bo, dma_buf) = shared(&reader, 4096);
    let (out, out_dma_buf) = shared(&reader, 4096);
    let handle = writer.0.prime_import(dma_buf.as_raw_fd()).unwrap();
    gated(&reader, 1, &[bo], &[out]);
    bench.stage.await_arrival(1);
    let done_reading = export_fence(&out_dma_buf, READ).unwrap();
    import_fence(&dma_buf, READ, done_reading.as_raw_fd()).unwrap();
    log(&writer, 2, &[], &[Bo { handle, ..bo }]);
    // Another reader is not held up.
    let third = bench.client();
    let copy = third.0.prime_import(dma_buf.as_raw_fd()).unwrap();
    let result = third.create(1).unwrap();
    // One core is busy, the writer's job waits, so this one finds the other.
    log(&third, 3, &[Bo { handle: copy, ..bo }], &[result]);
    assert_eq!(writer.prep(handle, 0), Err(Errno::BUSY));
    bench.stage.open_gate(1);
    writer.prep(handle, FOREVER).unwrap();
    third.prep(result.handle, FOREVER).unwrap();
    let order = order(&bench);
    let place = |number| order.iter().position(|&other| other == number).unwrap();
    assert!(place(1) < place(2), "{order:?}");
}

#[test]
fn an_imported_write_fence_holds_up_readers_and_prep() {
    let bench = Bench::new(2);
    let (first, second) = (bench.client(), bench.client());
    let (out, out_dma_buf) = shared(&first, 1);
    let (bo, dma_buf) = shared(&second, 1);
    let result = second.create(1).unwrap();
    gated(&first, 1, &[], &[out]);
    bench.stage.await_arrival(1);
    let fence = export_fence(&out_dma_buf, READ).unwrap();
    import_fence(&dma_buf, WRITE, fence.as_raw_fd()).unwrap();
    log(&second, 2, &[bo], &[result]);
    assert_eq!(second.prep(bo.handle, 0), Err(Errno::BUSY));
    bench.stage.open_gate(1);
    second.prep(result.handle, FOREVER).unwrap();
    assert_eq!(order(&bench), [1, 2]);
}

#[test]
fn fences_of_one_device_order_jobs_of_another() {
    let (here, there) = (Bench::new(1), Bench::new(1));
    let (own, foreign) = (here.client(), there.client());
    let (out, out_dma_buf) = shared(&foreign, 1);
    let (bo, dma_buf) = shared(&own, 1);
    let imported = own.0.prime_import(out_dma_buf.as_raw_fd());
    assert_eq!(imported, Err(Errno::INVAL), "its pages are foreign");
    gated(&foreign, 1, &[], &[out]);
    there.stage.await_arrival(1);
    let fence = export_fence(&out_dma_buf, READ).unwrap();
    import_fence(&dma_buf, WRITE, fence.as_raw_fd()).unwrap();
    log(&own, 2, &[], &[bo]);
    assert_eq!(own.prep(bo.handle, 0), Err(Errno::BUSY));
    assert!(order(&here).is_empty());
    there.stage.open_gate(1);
    // Nothing else happens here that would wake the core.
    own.prep(bo.handle, FOREVER).unwrap();
    assert_eq!(order(&here), [2]);
}

#[test]
fn a_dma_buf_outlives_file_and_device() {
    let bench = Bench::new(1);
    let client = bench.client();
    let (bo, dma_buf) = shared(&client, 1);
    client.run(
        &[Step::Write {
            iova: bo.iova,
            value: 7,
        }],
        &[],
        &[bo],
    );
    client.prep(bo.handle, FOREVER).unwrap();
    drop(client);
    drop(bench);
    assert_eq!(file(&dma_buf).seek(SeekFrom::End(0)), Ok(4096));
    assert!(readable(&export_fence(&dma_buf, WRITE).unwrap(), AT_ONCE));
    let map = file(&dma_buf)
        .mmap(0, 4096, ProtFlags::READ, MapFlags::SHARED)
        .unwrap();
    let mut bytes = [0; 4];
    read(&map, 0, &mut bytes);
    assert_eq!(bytes, 7u32.to_le_bytes());
}

#[test]
fn the_first_export_says_whether_it_can_be_written() {
    /// `O_CLOEXEC`, `O_RDWR`.
    const FLAGS: [u32; 2] = [0o2_000_000, 0o2_000_002];
    let bench = Bench::new(1);
    let client = bench.client();
    for first_is_writable in [false, true] {
        let bo = client.create(4096).unwrap();
        for flags in [FLAGS[usize::from(first_is_writable)], FLAGS[1], FLAGS[0]] {
            let mut arg = [bo.handle, flags, 0].map(u32::to_ne_bytes).concat();
            client.raw(HANDLE_TO_FD, &mut arg).unwrap();
            let number = i32::from_ne_bytes(arg[8..].try_into().unwrap());
            let shared = SharedFile::of(number).unwrap().unwrap();
            let map = |prot| shared.mmap(0, 4096, prot, MapFlags::SHARED).map(drop);
            assert_eq!(map(ProtFlags::READ), Ok(()));
            let expected = if first_is_writable {
                Ok(())
            } else {
                Err(Errno::ACCESS)
            };
            assert_eq!(map(ProtFlags::READ | ProtFlags::WRITE), expected);
            // Its descriptor alone says the same.
            let path = format!("/proc/self/fdinfo/{number}");
            let info = std::fs::read_to_string(path).unwrap();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
            let writable = flags.unwrap().trim().ends_with('2');
            assert_eq!(writable, first_is_writable, "{info}");
            nix::unistd::close(number).unwrap();
        }
    }
}
