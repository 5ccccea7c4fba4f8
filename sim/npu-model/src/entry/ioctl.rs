// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ioctl entry: request numbers and bytes in, errno out.
//!
//! Copying follows drm_ioctl (Linux, drivers/gpu/drm/drm_ioctl.c). The size in the
//! request is the client's. A shorter argument is extended with zeros, the tail of
//! a longer one is ignored, and the result is copied back only up to the client's
//! size.

use std::sync::Arc;

use rocket_uapi::{Caller, Deadline, monotonic_ns, sys};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::base::abi;
use crate::base::bugs::Bug;
use crate::base::event::Event;
use crate::files::device::DriverState;
use crate::files::dma_buf::ModelDmaBuf;
use crate::files::drm_file::DrmFile;
use crate::files::shared_file::{self, SharedFile};
use crate::jobs::job::{self, DropReason};
use crate::objects::resv::Usage;

/// Strings of VERSION. The version is 0.0.0, although the uAPI is complete
/// (observed).
const DRIVER_NAME: &str = "rocket";
const DRIVER_DESCRIPTION: &str = "rocket DRM";
const DRIVER_DATE: &str = "0";

/// Flags that PRIME_HANDLE_TO_FD takes.
const PRIME_FLAGS: u32 = sys::DRM_CLOEXEC | sys::DRM_RDWR;

impl DrmFile {
    /// An ioctl on the device node.
    ///
    /// `arg` is the memory that the argument pointer points to. It may be shorter
    /// or longer than the size in the request number; an empty slice stands for a
    /// null pointer. `user` is the calling process: pointers inside the structures
    /// point into its memory, and descriptors are its own.
    ///
    /// # Errors
    /// The errno that the real driver returns; see `docs/driver.md`.
    pub fn ioctl(&self, request: u32, arg: &mut [u8], user: &dyn Caller) -> Result<i32, Errno> {
        self.check_device()?;
        if sys::letter(request) != sys::letter(sys::VERSION) {
            return Err(Errno::NOTTY);
        }
        let is = |known| sys::is_call(request, known);
        if is(sys::CREATE_BO) {
            update(request, arg, sys::CREATE_BO, |arg| self.create_bo(arg))
        } else if is(sys::SUBMIT) {
            update(request, arg, sys::SUBMIT, |arg| self.submit(arg, user))
        } else if is(sys::PREP_BO) {
            update(request, arg, sys::PREP_BO, |arg| self.prep_bo(arg, user))
        } else if is(sys::FINI_BO) {
            update(request, arg, sys::FINI_BO, |arg| self.fini_bo(arg))
        } else if is(sys::VERSION) {
            update(request, arg, sys::VERSION, |arg| version(arg, user))
        } else if is(sys::GET_CAP) {
            update(request, arg, sys::GET_CAP, get_cap)
        } else if is(sys::GEM_CLOSE) {
            update(request, arg, sys::GEM_CLOSE, |arg| self.gem_close(arg))
        } else if is(sys::PRIME_HANDLE_TO_FD) {
            update(request, arg, sys::PRIME_HANDLE_TO_FD, |arg| {
                self.handle_to_fd(arg, user)
            })
        } else if is(sys::PRIME_FD_TO_HANDLE) {
            update(request, arg, sys::PRIME_FD_TO_HANDLE, |arg| {
                self.fd_to_handle(arg, user)
            })
        } else if is(abi::GET_UNIQUE) {
            let how = "DRM_IOCTL_GET_UNIQUE; never send it to an accel node";
            self.driver().health.run_into(Bug::GetUnique, how);
            self.check_device()?;
            Err(Errno::INVAL)
        } else if is(abi::GEM_FLINK) || is(abi::GEM_OPEN) {
            Err(Errno::ACCESS)
        } else {
            let number = request & 0xff;
            let mut unsupported = abi::UNSUPPORTED_CORE.iter();
            Err(if unsupported.any(|range| range.contains(&number)) {
                Errno::OPNOTSUPP
            } else {
                Errno::INVAL
            })
        }
    }

    fn create_bo(&self, arg: &mut sys::CreateBo) -> Result<(), Errno> {
        shared_file::collect();
        self.client_maps.collect();
        let objects = &self.driver().objects;
        let object = match objects.create(arg.size, &self.open.space) {
            Ok(object) => object,
            Err(errno) => return Err(self.create_failed(arg, errno)),
        };
        arg.dma_address = object.iova;
        arg.offset = object.mmap_offset;
        arg.handle = self.handles().insert(object)?;
        Ok(())
    }

    /// Applies the effects of a CREATE_BO that failed with `errno`. Returns the
    /// client's errno.
    fn create_failed(&self, arg: &mut sys::CreateBo, errno: Errno) -> Errno {
        let DriverState {
            options, health, ..
        } = self.driver();
        // Size 0 fails before there is a handle.
        if options.driver.create_unwinds || arg.size == 0 {
            return errno;
        }
        let leave_handle = || self.handles().insert_dangling();
        health.create_failed(arg, errno, leave_handle)
    }

    fn submit(&self, arg: &mut sys::Submit, user: &dyn Caller) -> Result<(), Errno> {
        let DriverState {
            options,
            health,
            scheduler,
            ..
        } = self.driver();
        let jobs = job::read_jobs(arg, user);
        let jobs = jobs.inspect_err(|&errno| {
            if errno == Errno::NOMEM {
                health.absurd_count();
            }
        })?;
        for (index, job) in jobs.iter().enumerate() {
            match job::read_job(job, user, &|handle| self.lookup(handle)) {
                Ok(request) => {
                    request.check_caches();
                    let open = &self.open;
                    scheduler.push(open.entity, request, &open.space)?;
                }
                // The caller is gone and sees no result.
                Err(_) if user.is_gone() => return Err(Errno::FAULT),
                Err(reason) => {
                    health.events.push(Event::JobDropped {
                        index,
                        reason: reason.to_string(),
                    });
                    if reason == DropReason::Count {
                        health.absurd_count();
                    }
                    if !options.driver.submit_unwinds {
                        if reason.is_before_queue() {
                            health.not_queued(&reason.to_string(), reason.frees_tasks());
                        }
                        self.check_device()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn prep_bo(&self, arg: &mut sys::PrepBo, user: &dyn Caller) -> Result<(), Errno> {
        if arg.reserved != 0 {
            return Err(Errno::INVAL);
        }
        let object = self.lookup(arg.handle).ok_or(Errno::NOENT)?;
        let left = Deadline::from_nanos(arg.timeout_ns).remaining();
        let only_look = left.is_zero();
        let until = if only_look {
            Deadline::NOW
        } else {
            let profile = &self.driver().options.driver;
            profile.end_of_wait(monotonic_ns(), left)
        };
        let writers = Usage::to_wait_for(false);
        let waits_for = object.reservation.named(writers);
        let waited = object.reservation.wait(writers, until, user.wake());
        if waited.is_ok() {
            let scheduler = &self.driver().scheduler;
            scheduler.waited(self.open.entity, &waits_for);
        }
        // Caches are maintained whatever the result of the wait.
        object.sync_for_cpu();
        waited.map_err(|errno| match errno {
            Errno::TIMEDOUT if only_look => Errno::BUSY,
            other => other,
        })
    }

    fn fini_bo(&self, arg: &mut sys::FiniBo) -> Result<(), Errno> {
        if arg.reserved != 0 {
            return Err(Errno::INVAL);
        }
        let object = self.lookup(arg.handle).ok_or(Errno::NOENT)?;
        object.sync_for_device();
        Ok(())
    }

    fn gem_close(&self, arg: &mut sys::GemClose) -> Result<(), Errno> {
        if self.handles().is_dangling(arg.handle) {
            drop(self.lookup(arg.handle));
            return Ok(());
        }
        // This may be the last reference, so drop it after the lock.
        let object = self.handles().remove(arg.handle);
        let object = object.ok_or(Errno::INVAL)?;
        drop(object);
        self.client_maps.collect();
        shared_file::collect();
        Ok(())
    }

    fn handle_to_fd(&self, arg: &mut sys::PrimeHandle, user: &dyn Caller) -> Result<(), Errno> {
        if arg.flags & !PRIME_FLAGS != 0 {
            return Err(Errno::INVAL);
        }
        let object = self.lookup(arg.handle).ok_or(Errno::NOENT)?;
        // The first export decides whether the dma-buf is writable.
        let file = ModelDmaBuf::export(&object, arg.flags & sys::DRM_RDWR != 0)?;
        user.install(file, arg.flags & sys::DRM_CLOEXEC != 0, &mut |number| {
            arg.fd = number;
            Ok(())
        })
    }

    fn fd_to_handle(&self, arg: &mut sys::PrimeHandle, user: &dyn Caller) -> Result<(), Errno> {
        let fd = user.descriptor(arg.fd)?;
        shared_file::collect();
        // The driver cannot import the pages of another exporter. In a file that
        // did not create the object, the handle has no IOVA.
        let file = SharedFile::of(fd.number())?;
        let object = file.as_ref().and_then(|file| file.0.object());
        let own = object.filter(|object| object.is_of(&self.driver().objects));
        let object = own.ok_or(Errno::INVAL)?;
        let mut handles = self.handles();
        arg.handle = match handles.find(object) {
            Some(handle) => handle,
            None => handles.insert(Arc::clone(object))?,
        };
        Ok(())
    }
}

fn version(arg: &mut sys::Version, user: &dyn Caller) -> Result<(), Errno> {
    (arg.version_major, arg.version_minor, arg.version_patchlevel) = (0, 0, 0);
    let strings = [
        (&mut arg.name_len, arg.name, DRIVER_NAME),
        (&mut arg.date_len, arg.date, DRIVER_DATE),
        (&mut arg.desc_len, arg.desc, DRIVER_DESCRIPTION),
    ];
    for (len, buffer, text) in strings {
        // Copies as much as fits, without a terminator, but returns the full
        // length.
        let room = usize::try_from(*len).unwrap_or(usize::MAX);
        let fits = &text.as_bytes()[..text.len().min(room)];
        *len = text.len() as u64;
        if !fits.is_empty() && buffer != 0 {
            user.write(buffer, fits)?;
        }
    }
    Ok(())
}

fn get_cap(arg: &mut sys::GetCap) -> Result<(), Errno> {
    arg.value = match arg.capability {
        abi::CAP_PRIME => abi::PRIME_CAP_BOTH,
        abi::CAP_TIMESTAMP_MONOTONIC => 1,
        abi::CAP_SYNCOBJ | abi::CAP_SYNCOBJ_TIMELINE => 0,
        // All others are about mode setting.
        _ => return Err(Errno::OPNOTSUPP),
    };
    Ok(())
}

/// Direction bits of a request number: the argument is copied in, the result is
/// copied out.
const COPIED_IN: u32 = 1 << 30;
const COPIED_OUT: u32 = 1 << 31;

/// Copies the argument in, runs `action` on it, and copies it out.
///
/// `known` is the request as the driver defines it. Only its directions are copied.
fn update<T: FromBytes + IntoBytes + Immutable>(
    request: u32,
    arg: &mut [u8],
    known: u32,
    action: impl FnOnce(&mut T) -> Result<(), Errno>,
) -> Result<i32, Errno> {
    let size = |direction| match request & known & direction {
        0 => 0,
        _ => sys::arg_len(request),
    };
    let (in_size, out_size) = (size(COPIED_IN), size(COPIED_OUT));
    let mut value: T = sys::structure(arg.get(..in_size).ok_or(Errno::FAULT)?);

    let result = action(&mut value);

    // The kernel copies out even after an error.
    let bytes = value.as_bytes();
    let known_out = out_size.min(bytes.len());
    let target = arg.get_mut(..out_size).ok_or(Errno::FAULT)?;
    target[..known_out].copy_from_slice(&bytes[..known_out]);
    result.map(|()| 0)
}
