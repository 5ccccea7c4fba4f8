// SPDX-License-Identifier: MIT OR Apache-2.0
//! Callers in other processes: what they map, what interrupts them, and their
//! descriptors, as a server says it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use npu_model::driver::{Arena, Caller, Descriptor, DrmFile, Efault, UserMemory, Wake};
use rustix::io::Errno;
use rustix::mm::MapFlags;
use zerocopy::IntoBytes;

use crate::client::{Bench, CREATE_BO, FD_TO_HANDLE, FOREVER, GEM_CLOSE, HANDLE_TO_FD, PREP_BO};
use crate::script::Step;

/// Makes a buffer object; returns handle, address and mmap offset.
fn create(file: &DrmFile, size: u32) -> (u32, u64, u64) {
    let mut arg = [0; 24];
    arg[..4].copy_from_slice(&size.to_ne_bytes());
    file.ioctl(CREATE_BO, &mut arg, &Arena::new()).unwrap();
    let word = |at: usize| u64::from_ne_bytes(arg[at..at + 8].try_into().unwrap());
    let handle = u32::from_ne_bytes(arg[4..8].try_into().unwrap());
    (handle, word(8), word(16))
}

fn close(file: &DrmFile, handle: u32) {
    let mut arg = [handle, 0];
    file.ioctl(GEM_CLOSE, arg.as_mut_bytes(), &Arena::new())
        .unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "memfd")]
fn a_file_to_map_keeps_object_and_address() {
    let bench = Bench::new(1);
    let file = bench.driver.open();
    let (handle, iova, offset) = create(&file, 4096);
    let first = file.mmap_file(offset, 4096, MapFlags::SHARED).unwrap();
    let second = file.mmap_file(offset, 100, MapFlags::SHARED).unwrap();
    File::from(first.try_clone().unwrap())
        .write_all_at(b"abc", 0)
        .unwrap();
    close(&file, handle);
    assert_ne!(create(&file, 4096).1, iova, "still mapped");
    drop(first);
    assert_ne!(create(&file, 4096).1, iova, "still mapped once");
    let mut bytes = [0; 3];
    File::from(second).read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"abc");
    assert_eq!(create(&file, 4096).1, iova, "free again");
}

/// Whoever collects what others no longer map, their next object finds the
/// address free.
#[test]
#[cfg_attr(miri, ignore = "memfd")]
fn addresses_are_free_again_whoever_collects() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 300;
    let bench = Bench::new(1);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let file = bench.driver.open();
                for round in 0..ROUNDS {
                    let (handle, iova, offset) = create(&file, 4096);
                    assert_eq!(iova, 0, "round {round}");
                    drop(file.mmap_file(offset, 4096, MapFlags::SHARED).unwrap());
                    close(&file, handle);
                }
            });
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "memfd")]
fn what_cannot_be_mapped_has_no_file() {
    let bench = Bench::new(1);
    let (file, other) = (bench.driver.open(), bench.driver.open());
    let (_, _, offset) = create(&file, 4096);
    for (file, offset, len, flags, errno) in [
        (&file, offset, 4097, MapFlags::SHARED, Errno::INVAL),
        (&file, offset, 0, MapFlags::SHARED, Errno::INVAL),
        (&file, 0, 4096, MapFlags::SHARED, Errno::INVAL),
        (&file, offset, 4096, MapFlags::PRIVATE, Errno::INVAL),
        (&other, offset, 4096, MapFlags::SHARED, Errno::ACCESS),
    ] {
        let refused = file.mmap_file(offset, len, flags);
        assert_eq!(refused.err(), Some(errno));
    }
}

/// A caller that has an interrupt ready, or one descriptor, or one to take.
#[derive(Default)]
struct Remote {
    interrupt: Option<OwnedFd>,
    sent: Mutex<Option<OwnedFd>>,
    installed: Mutex<Option<OwnedFd>>,
}

impl UserMemory for Remote {
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Efault> {
        Err(Efault)
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), Efault> {
        Err(Efault)
    }
}

impl Caller for Remote {
    fn descriptor(&self, number: RawFd) -> Result<Descriptor, Errno> {
        assert_eq!(number, 1234, "as the caller named it");
        let sent = self.sent.lock().unwrap().take();
        sent.map(Descriptor::Sent).ok_or(Errno::BADF)
    }

    fn install(
        &self,
        file: OwnedFd,
        close_on_exec: bool,
        tell: &mut dyn FnMut(RawFd) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        assert!(!close_on_exec);
        *self.installed.lock().unwrap() = Some(file);
        tell(1234)
    }

    fn wake(&self) -> Wake<'_> {
        match &self.interrupt {
            Some(file) => Wake::Readable(file.as_fd()),
            None => Wake::Now,
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "timerfd, sockets")]
fn a_wait_ends_when_its_caller_says_so() {
    const GATE: u32 = 1;
    let bench = Bench::new(1);
    let client = bench.client();
    let bo = client.create(4096).unwrap();
    client.run(&[Step::Wait { gate: GATE }], &[], &[bo]);
    let prep = |caller: &Remote| {
        let mut arg = [0u64; 2];
        arg[0] = u64::from(bo.handle);
        arg[1] = FOREVER.cast_unsigned();
        client.raw_with(PREP_BO, arg.as_mut_bytes(), caller)
    };
    assert_eq!(
        prep(&Remote::default()),
        Err(Errno::INTR),
        "interrupted before"
    );
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let caller = Remote {
        interrupt: Some(reader),
        ..Remote::default()
    };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| prep(&caller));
        // A caller that is gone has hung up.
        drop(writer);
        assert_eq!(waiting.join().unwrap(), Err(Errno::INTR));
    });
    bench.stage.open_gate(GATE);
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let patient = Remote {
        interrupt: Some(reader),
        ..Remote::default()
    };
    assert_eq!(prep(&patient), Ok(0));
}

#[test]
#[cfg_attr(miri, ignore = "memfd")]
fn descriptors_are_the_callers() {
    let bench = Bench::new(1);
    let (file, other) = (bench.driver.open(), bench.driver.open());
    let (handle, _, _) = create(&file, 4096);
    let caller = Remote::default();
    let mut arg = [handle, 0o2, 0];
    file.ioctl(HANDLE_TO_FD, arg.as_mut_bytes(), &caller)
        .unwrap();
    assert_eq!(arg[2], 1234);
    *caller.sent.lock().unwrap() = caller.installed.lock().unwrap().take();
    let mut import = [0, 0, 1234];
    other
        .ioctl(FD_TO_HANDLE, import.as_mut_bytes(), &caller)
        .unwrap();
    assert_eq!(import[0], 1);
    let gone = other.ioctl(FD_TO_HANDLE, import.as_mut_bytes(), &caller);
    assert_eq!(gone, Err(Errno::BADF));
}
