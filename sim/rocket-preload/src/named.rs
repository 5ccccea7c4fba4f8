// SPDX-License-Identifier: MIT OR Apache-2.0
//! What of the program's memory and descriptors a call names.
//!
//! The server works on an ioctl's argument as a kernel does, by addresses and
//! numbers in it, but it is a process as any other: it gets what the program
//! named in this call, by the kernel's definition of the ioctl, and nothing
//! else.

use std::cell::Cell;

use rocket_uapi::{read_own_memory, sys};
use zerocopy::{FromBytes, IntoBytes};

use crate::wire::{ClientMemory, Room};

/// Which kind of file answers a call, if it is an ioctl.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// No ioctl: it names nothing.
    None,
    /// The device's. Its argument goes to the server and comes back with the
    /// request and the result.
    Device,
    /// A dma-buf's or a sync_file's. The server asks for the argument too.
    File,
}

/// The memory and descriptors that a call names: all that the server may ask for.
pub(crate) struct Named {
    kind: Kind,
    number: u32,
    arg: u64,
    /// Of a SUBMIT: the job that was asked for last.
    job: Cell<u32>,
}

/// `count` things, `size` bytes each, from `addr` on.
#[derive(Clone, Copy)]
struct Span {
    addr: u64,
    count: u64,
    size: usize,
}

impl Span {
    const NONE: Self = Self::new(0, 0, 0);

    const fn new(addr: u64, count: u64, size: usize) -> Self {
        Self { addr, count, size }
    }

    fn holds(self, memory: ClientMemory) -> bool {
        // Neither overflows: a count of bytes, or 32 bits of each.
        let end = u128::from(self.addr) + u128::from(self.count) * self.size as u128;
        let asked = u128::from(memory.addr) + memory.len as u128;
        self.addr <= memory.addr && asked <= end
    }
}

impl Named {
    /// A call that is no ioctl names nothing.
    pub(crate) fn nothing() -> Self {
        Self::new(Kind::None, 0, 0)
    }

    fn new(kind: Kind, number: u32, arg: u64) -> Self {
        let job = Cell::new(0);
        Self {
            kind,
            number,
            arg,
            job,
        }
    }

    /// What an ioctl of the device names.
    ///
    /// # Safety
    /// As ioctl(2): what the request writes, by its number at `arg` and by its
    /// definition at the addresses there, is memory that the program lets it
    /// write, or none.
    pub(crate) unsafe fn by_device(number: u32, arg: u64) -> Self {
        Self::new(Kind::Device, number, arg)
    }

    /// What an ioctl of a dma-buf or a sync_file names.
    ///
    /// # Safety
    /// As for [`Self::by_device`].
    pub(crate) unsafe fn by_file(number: u32, arg: u64) -> Self {
        Self::new(Kind::File, number, arg)
    }

    /// The argument that goes along with the request.
    pub(crate) fn sent(&self) -> ClientMemory {
        match self.kind {
            Kind::Device => self.all(),
            Kind::None | Kind::File => ClientMemory::NONE,
        }
    }

    /// Where what comes back with the result goes.
    pub(crate) fn returned(&self) -> Room<'_> {
        if self.kind == Kind::Device && sys::writes_arg(self.number) {
            // SAFETY: the request writes its argument, which makes it the
            // program's promise.
            unsafe { Room::at(self.all()) }
        } else {
            Room::NONE
        }
    }

    /// Whether the call reads this memory.
    pub(crate) fn reads(&self, memory: ClientMemory) -> bool {
        let whole = self.all();
        match self.kind {
            Kind::Device if self.is(sys::SUBMIT) => self.submit_reads(memory),
            Kind::File if self.is(sys::DMA_BUF_SET_NAME) => {
                Span::new(self.arg, 1, sys::DMA_BUF_NAME_BYTES).holds(memory)
            }
            Kind::File => Span::new(self.arg, 1, whole.len).holds(memory),
            Kind::None | Kind::Device => false,
        }
    }

    /// This memory to be written, if the call writes it.
    pub(crate) fn room(&self, memory: ClientMemory) -> Option<Room<'_>> {
        let spans = match self.kind {
            Kind::Device if self.is(sys::VERSION) => {
                let version: sys::Version = self.argument();
                [
                    Span::new(version.name, version.name_len, 1),
                    Span::new(version.date, version.date_len, 1),
                    Span::new(version.desc, version.desc_len, 1),
                ]
            }
            Kind::File if sys::writes_arg(self.number) => {
                let arg = Span::new(self.arg, 1, self.all().len);
                [arg, self.fence_infos(), Span::NONE]
            }
            Kind::None | Kind::Device | Kind::File => [Span::NONE; 3],
        };
        let is_written = spans.into_iter().any(|span| span.holds(memory));
        // SAFETY: what the request writes by its definition, which makes it the
        // program's promise.
        is_written.then(|| unsafe { Room::at(memory) })
    }

    /// Whether the call takes this descriptor.
    pub(crate) fn takes(&self, descriptor: i32) -> bool {
        let named = match self.kind {
            Kind::Device if self.is(sys::PRIME_FD_TO_HANDLE) => {
                self.argument::<sys::PrimeHandle>().fd
            }
            Kind::File if self.is(sys::IMPORT_SYNC_FILE) => {
                self.argument::<sys::ImportSyncFile>().fd
            }
            Kind::File if self.is(sys::SYNC_MERGE) => self.argument::<sys::SyncMergeData>().fd2,
            Kind::None | Kind::Device | Kind::File => return false,
        };
        named == descriptor
    }

    fn is(&self, known: u32) -> bool {
        sys::is_call(self.number, known)
    }

    /// The argument, as long as the request says.
    fn all(&self) -> ClientMemory {
        ClientMemory {
            addr: self.arg,
            len: sys::arg_len(self.number),
        }
    }

    /// The argument as it is now, extended by zeroes as the kernel does it.
    fn argument<T: FromBytes + IntoBytes>(&self) -> T {
        let mut value = T::new_zeroed();
        let bytes = value.as_mut_bytes();
        let len = bytes.len().min(self.all().len);
        // What cannot be read names nothing.
        if read_own_memory(self.arg, &mut bytes[..len]).is_err() {
            bytes.fill(0);
        }
        value
    }

    /// The array of SYNC_IOC_FILE_INFO.
    fn fence_infos(&self) -> Span {
        if !self.is(sys::SYNC_FILE_INFO) {
            return Span::NONE;
        }
        let info: sys::SyncFileInfo = self.argument();
        Span::new(
            info.sync_fence_info,
            info.num_fences.into(),
            size_of::<sys::SyncFenceInfo>(),
        )
    }

    /// Whether SUBMIT reads this memory: its array of jobs, or one of the
    /// arrays of one of them. Servers ask for those in the order of the jobs.
    fn submit_reads(&self, memory: ClientMemory) -> bool {
        let submit: sys::Submit = self.argument();
        let (count, stride) = (submit.job_count, submit.job_struct_size as usize);
        if Span::new(submit.jobs, count.into(), stride).holds(memory) {
            return true;
        }
        let last = self.job.get().min(count);
        for index in (last..count).chain(0..last) {
            let mut job = sys::Job::default();
            let at = submit.jobs.wrapping_add(u64::from(index) * stride as u64);
            if read_own_memory(at, job.as_mut_bytes()).is_err() {
                return false;
            }
            let handle = size_of::<u32>();
            let arrays = [
                (job.tasks, job.task_count, job.task_struct_size as usize),
                (job.in_bo_handles, job.in_bo_handle_count, handle),
                (job.out_bo_handles, job.out_bo_handle_count, handle),
            ];
            let is_read = arrays
                .iter()
                .any(|&(addr, count, size)| Span::new(addr, count.into(), size).holds(memory));
            if is_read {
                self.job.set(index);
                return true;
            }
        }
        false
    }
}
