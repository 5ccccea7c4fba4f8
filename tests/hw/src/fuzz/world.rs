// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files, objects, mappings and fences of one thread, and calls on them.

use std::iter;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::sys::wait::WaitStatus;
use rocket_uapi::{Deadline, Device, Errno, MapRequest, PAGE_BYTES, sys};
use rustix::mm::MapFlags;

use super::choices::{CallChoices, handle, size};
use crate::bench::close_handles;
use crate::check::{Must, NotPassed, RowOutcome, ensure};
use crate::fork::{self, Child};
use crate::program::MatmulProgram;
use crate::raw::{File, Map};
use crate::request::{NOT_DRM, SYNCOBJ_CREATE, UNKNOWN_DRIVER_IOCTL};
use crate::submit::SubmitArgs;

/// Most things of each kind that a thread keeps.
const KEPT: usize = 24;

/// Handles that are closed in the end are lower: several threads have no more.
const HANDLES: u32 = 512;

/// A file, a program in it, and the objects that the thread made there.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) file: File,
    pub(super) program: MatmulProgram,
    pub(super) bos: Vec<sys::CreateBo>,
}

/// Limits of the calls of a [`World`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of tasks that may hang: on a kernel each costs 500 ms.
    pub hangs: u32,
    /// Whether to make calls that trigger the bugs of docs/driver.md, too.
    pub known_bugs: bool,
    /// Whether to fork this process.
    pub forks: bool,
}

/// The files, objects, dma-bufs and fences of one thread.
#[derive(Debug)]
pub struct World<C> {
    pub(super) rng: C,
    pub(super) slots: Vec<Slot>,
    maps: Vec<Map>,
    pub(super) dma_bufs: Vec<OwnedFd>,
    pub(super) fences: Vec<OwnedFd>,
    /// dma-bufs that jobs of closed files may still use.
    visited: Vec<OwnedFd>,
    pub(super) limits: Limits,
}

/// The value; `None` for an expected error.
pub(super) fn only<T>(
    what: &str,
    got: Result<T, Errno>,
    errors: &[Errno],
) -> Result<Option<T>, NotPassed> {
    match got {
        Ok(value) => Ok(Some(value)),
        Err(error) if errors.contains(&error) => Ok(None),
        Err(error) => Err(NotPassed::Fail(format!("{what}: {error}"))),
    }
}

/// Adds `one`, if any. If there are many already, drops one of them first.
pub(super) fn keep<T>(rng: &mut impl CallChoices, all: &mut Vec<T>, one: Option<T>) {
    let Some(one) = one else {
        return;
    };
    if all.len() >= KEPT {
        let at = rng.within(0..all.len() as u64) as usize;
        all.swap_remove(at);
    }
    all.push(one);
}

impl Slot {
    fn new(file: File) -> Result<Self, NotPassed> {
        Ok(Self {
            program: MatmulProgram::new(&file, 0, None)?,
            file,
            bos: Vec::new(),
        })
    }

    pub(super) fn handles(&self) -> Vec<u32> {
        self.bos.iter().map(|bo| bo.handle).collect()
    }
}

impl<C: CallChoices> World<C> {
    /// A world with these files of one device, each with a program. Other threads may
    /// share the first.
    ///
    /// # Errors
    /// If a program cannot be placed.
    pub fn new(files: &[Device; 3], rng: C, limits: Limits) -> Result<Self, NotPassed> {
        let slots = files.iter().map(|file| Slot::new(File::new(file)));
        Ok(Self {
            rng,
            slots: slots.collect::<Result<_, _>>()?,
            maps: Vec::new(),
            dma_bufs: Vec::new(),
            fences: Vec::new(),
            visited: Vec::new(),
            limits,
        })
    }

    /// The source of the choices.
    pub fn choices(&mut self) -> &mut C {
        &mut self.rng
    }

    /// Makes one call.
    ///
    /// # Errors
    /// The check that failed.
    pub fn step(&mut self) -> RowOutcome {
        match self.rng.within(0..40) {
            0..6 => self.create(),
            6..9 => self.close(),
            9..12 => self.map(),
            12..14 => self.touch(),
            14..18 => self.prep(),
            18..20 => self.fini(),
            20..27 => self.submit(),
            27..29 => self.export(),
            29..31 => self.import(),
            31..36 => self.fences(),
            36 => self.drop_one(),
            37 => self.fork(),
            38 => self.visitor(),
            _ => self.entry(),
        }
    }

    pub(super) fn slot(&mut self) -> usize {
        self.rng.within(0..self.slots.len() as u64) as usize
    }

    /// A file, and a handle that may belong to it.
    pub(super) fn named(&mut self) -> (File, u32) {
        let at = self.slot();
        let slot = &self.slots[at];
        (slot.file.clone(), handle(&mut self.rng, &slot.handles()))
    }

    fn create(&mut self) -> RowOutcome {
        let at = self.slot();
        let size = size(&mut self.rng, self.limits.known_bugs);
        let slot = &mut self.slots[at];
        let refused = [Errno::NOSPC, Errno::NOMEM];
        let got = slot.file.create(size);
        if let Some(bo) = only(&format!("CREATE_BO of {size}"), got, &refused)? {
            ensure("an object of 0 bytes is refused", size != 0)?;
            let aligned = (bo.dma_address | bo.offset).is_multiple_of(PAGE_BYTES as u64);
            ensure("address and offset are page-aligned", aligned)?;
            slot.bos.push(bo);
        }
        if slot.bos.len() > KEPT {
            let bo = slot.bos.remove(0);
            only("GEM_CLOSE", slot.file.close(bo.handle), &[Errno::INVAL])?;
        }
        Ok(())
    }

    fn close(&mut self) -> RowOutcome {
        let (file, handle) = self.named();
        only("GEM_CLOSE", file.close(handle), &[Errno::INVAL]).map(drop)
    }

    fn map(&mut self) -> RowOutcome {
        let at = self.slot();
        let slot = &self.slots[at];
        let Some(bo) = self.rng.pick(&slot.bos) else {
            return Ok(());
        };
        let offset = self
            .rng
            .mostly(bo.offset, &[0, 1, bo.offset + 1, u64::MAX << 12]);
        let page = PAGE_BYTES;
        let len = self.rng.mostly(page, &[0, 1, 3 * page, 1 << 40]);
        let flags = self.rng.mostly(MapFlags::SHARED, &[MapFlags::PRIVATE]);
        let request = MapRequest {
            flags,
            ..MapRequest::shared(offset, len)
        };
        let refused = [Errno::INVAL, Errno::ACCESS, Errno::NOMEM, Errno::OVERFLOW];
        let got = slot.file.map(&request);
        let map = only("mmap", got, &refused)?;
        keep(&mut self.rng, &mut self.maps, map);
        Ok(())
    }

    fn touch(&mut self) -> RowOutcome {
        let at = self.rng.any() as usize;
        if let Some(map) = self.maps.get(at % KEPT).filter(|map| map.len() > 0) {
            map.set(at % map.len(), map.get(at / KEPT % map.len()) ^ 1);
        }
        Ok(())
    }

    fn prep(&mut self) -> RowOutcome {
        let (file, handle) = self.named();
        let soon = Duration::from_micros(self.rng.within(0..5000));
        let soon = Deadline::after(soon).as_nanos();
        let far = i64::MAX;
        let past = [0, -1, i64::MIN, 1];
        let deadline = match self.rng.within(0..16) {
            0 => far,
            1..8 => soon,
            _ => self.rng.pick(&past).unwrap_or(0),
        };
        let reserved = self.rng.mostly(0, &[1, u32::MAX]);
        // A fuzzer's own timer interrupts the call with a signal.
        let prep = || file.prep_reserved(handle, reserved, deadline);
        let got = iter::repeat_with(prep).find(|got| *got != Err(Errno::INTR));
        let got = got.unwrap_or(Err(Errno::INTR));
        let refused = [Errno::INVAL, Errno::NOENT, Errno::BUSY, Errno::TIMEDOUT];
        only("PREP_BO", got, &refused).map(drop)
    }

    fn fini(&mut self) -> RowOutcome {
        let (file, handle) = self.named();
        let reserved = self.rng.mostly(0, &[1, u32::MAX]);
        let got = file.fini(handle, reserved);
        only("FINI_BO", got, &[Errno::INVAL, Errno::NOENT]).map(drop)
    }

    fn submit(&mut self) -> RowOutcome {
        let at = self.slot();
        let submission = self.submission(at);
        let refused = [Errno::INVAL, Errno::FAULT, Errno::NOMEM];
        let got = submission.submit(&self.slots[at].file);
        only(&format!("SUBMIT of {submission:?}"), got, &refused).map(drop)
    }

    fn drop_one(&mut self) -> RowOutcome {
        match self.rng.within(0..3) {
            0 => drop(self.maps.pop()),
            1 => drop(self.dma_bufs.pop()),
            _ => drop(self.fences.pop()),
        }
        Ok(())
    }

    fn fork(&mut self) -> RowOutcome {
        if !self.limits.forks {
            return Ok(());
        }
        let (file, handle) = self.named();
        let is_model = file.device().info().is_model;
        let child = match self.rng.within(0..4) {
            _ if is_model => Child::Nothing,
            0 if self.limits.known_bugs => Child::GetUnique,
            0 | 1 => Child::Nothing,
            _ => Child::Close(handle),
        };
        let ended = fork::run(&file, child)?;
        let well = matches!(ended, WaitStatus::Exited(_, 0)) || matches!(child, Child::GetUnique);
        ensure(&format!("a child ends without an error: {ended:?}"), well)
    }

    /// Closes a file with a job in flight, whose only object is another file's, which
    /// stays.
    fn visitor(&mut self) -> RowOutcome {
        let file = self.slots[0].file.reopen()?;
        if self.limits.known_bugs && self.rng.once_in(2) {
            // Its own objects are freed after the file.
            let slot = Slot::new(file)?;
            let job = slot.program.job(slot.program.bo.handle);
            return SubmitArgs::of(vec![job]).submit(&slot.file).must("SUBMIT");
        }
        let Some(dma_buf) = self.dma_bufs.last().filter(|_| self.limits.hangs > 0) else {
            file.create(1).must("CREATE_BO")?;
            return Ok(());
        };
        self.limits.hangs -= 1;
        let import = file.import(dma_buf.as_fd()).must("import")?;
        self.visited.push(dma_buf.try_clone().must("dup")?);
        // The program is at an address that this file has not mapped.
        let job = self.slots[0].program.job(import);
        SubmitArgs::of(vec![job]).submit(&file).must("SUBMIT")
    }

    /// Makes a call that rocket does not have, or one of another size.
    fn entry(&mut self) -> RowOutcome {
        let (file, handle) = self.named();
        match self.rng.within(0..6) {
            0 => {
                let created = file.call(SYNCOBJ_CREATE, &mut [0_u32; 2]);
                only("syncobj", created, &[Errno::OPNOTSUPP])
            }
            1 => {
                let unknown = file.call(UNKNOWN_DRIVER_IOCTL, &mut [0_u32; 2]);
                only("unknown", unknown, &[Errno::INVAL])
            }
            2 => {
                let other = file.call(NOT_DRM, &mut [0_u32; 2]);
                only("an ioctl that is not DRM's", other, &[Errno::NOTTY])
            }
            3 => only("FINI_BO of NULL", file.fini_null(), &[Errno::FAULT]),
            4 => only("poll", file.raw().poll().map(drop), &[]),
            _ => {
                let size = self.rng.within(4..256) as usize;
                let refused = [Errno::INVAL, Errno::NOENT];
                only("FINI_BO", file.fini_sized(handle, size), &refused)
            }
        }
        .map(drop)
    }

    /// Waits for all jobs, and releases all but the files.
    pub(super) fn settle(&mut self) -> RowOutcome {
        for slot in &self.slots {
            // Earlier jobs of the file end before this one.
            MatmulProgram::new(&slot.file, 0, None)?.run(&slot.file)?;
        }
        for dma_buf in mem::take(&mut self.visited) {
            let waited = self.slots[0]
                .file
                .dma_buf_sync(dma_buf.as_fd(), u64::from(sys::DMA_BUF_SYNC_WRITE));
            waited.must("DMA_BUF_IOCTL_SYNC")?;
        }
        mem::take(&mut self.maps);
        mem::take(&mut self.fences);
        mem::take(&mut self.dma_bufs);
        for slot in &mut self.slots {
            close_handles(&slot.file, HANDLES)?;
            slot.bos.clear();
        }
        Ok(())
    }
}
