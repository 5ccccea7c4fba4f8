// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory and descriptors of the program that a call names.
//!
//! The server processes an ioctl's argument like a kernel, following the addresses and
//! numbers in it. But it is an ordinary process: it gets only what the program named in
//! this call, by the kernel's definition of the ioctl.

use std::cell::Cell;

use rocket_uapi::{read_own_memory, sys};
use zerocopy::{FromBytes, IntoBytes};

use crate::wire::{ClientMemory, Room};

/// Kind of the file of an ioctl.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file that is not the device's, no ioctl, or a request that the kernel handles for any
    /// file. The call names nothing.
    None,
    /// The device. The argument is sent with the request, and returns with the result.
    Device,
    /// A dma-buf, a sync_file or a timeline. The server requests the argument too.
    File,
}

/// The memory and descriptors that a call names. The server may request only these.
pub(crate) struct Named {
    kind: Kind,
    number: u32,
    arg: u64,
    /// SUBMIT only: index of the job whose memory was requested last.
    job: Cell<u32>,
}

/// `count` elements of `size` bytes from `addr` on.
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
        // Neither sum overflows: either `size` is 1, or `count` and `size` have at most 32
        // bits.
        let end = u128::from(self.addr) + u128::from(self.count) * self.size as u128;
        let asked = u128::from(memory.addr) + memory.len as u128;
        self.addr <= memory.addr && asked <= end
    }
}

impl Named {
    /// For a call that is no ioctl.
    pub(crate) fn nothing() -> Self {
        // SAFETY: there is no ioctl.
        unsafe { Self::by_ioctl(Kind::None, 0, 0) }
    }

    /// For an ioctl of a file of this kind.
    ///
    /// # Safety
    /// As ioctl(2): the program lets the request write its argument at `arg`, as its number
    /// states, and the memory at the addresses there, as its definition states. Unmapped
    /// memory is allowed.
    pub(crate) unsafe fn by_ioctl(kind: Kind, number: u32, arg: u64) -> Self {
        Self {
            kind,
            number,
            arg,
            job: Cell::new(0),
        }
    }

    /// The argument that is sent with the request.
    pub(crate) fn sent(&self) -> ClientMemory {
        match self.kind {
            Kind::Device => self.all(),
            Kind::None | Kind::File => ClientMemory::NONE,
        }
    }

    /// The memory for the argument that returns with the result.
    pub(crate) fn returned(&self) -> Room<'_> {
        if self.kind == Kind::Device && sys::writes_arg(self.number) {
            // SAFETY: the request writes its argument, so the program has promised that
            // memory.
            unsafe { Room::at(self.all()) }
        } else {
            Room::NONE
        }
    }

    /// Whether the call may read this memory.
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

    /// This memory as writable, if the call may write it.
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
        // SAFETY: the request writes this memory by its definition, so the program has
        // promised it.
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

    /// The whole argument, with the length from the request number.
    fn all(&self) -> ClientMemory {
        ClientMemory {
            addr: self.arg,
            len: sys::arg_len(self.number),
        }
    }

    /// The argument's current value, extended by zeroes like in the kernel.
    fn argument<T: FromBytes + IntoBytes>(&self) -> T {
        let mut value = T::new_zeroed();
        let bytes = value.as_mut_bytes();
        let len = bytes.len().min(self.all().len);
        // An unreadable argument names nothing.
        if read_own_memory(self.arg, &mut bytes[..len]).is_err() {
            bytes.fill(0);
        }
        value
    }

    /// The array of SYNC_IOC_FILE_INFO; empty for other requests.
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

    /// Whether SUBMIT reads this memory: its array of jobs, or an array of one job. Servers
    /// request those in the order of the jobs, so the search starts at the last job.
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
