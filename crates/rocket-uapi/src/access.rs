// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU access to a buffer object: PREP_BO, a slice, FINI_BO.
//!
//! Why plain slices of memory that a device writes are sound here: while a guard lives it
//! borrows its [`Bo`], so no job can own the `Bo`. A job's programs access only the job's
//! buffers, which [`crate::JobBuilder::build`] proves from their register values. So no
//! device writes these bytes while the slice exists. Callers of `unsafe` functions
//! ([`crate::Device::submit_raw`], raw ioctls) promise the same. Nobody writes a frozen
//! object, so NPU and CPU may read it at once. The bytes are initialised: pages of a GEM
//! object are zeroed (`drm_gem_shmem_helper.c`).

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::slice;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bo::Bo;
use crate::error::Error;
use crate::units::Deadline;

impl Bo {
    /// Waits until no job writes the BO, and returns a guard to read it.
    ///
    /// # Errors
    /// PREP_BO fails; at the deadline a job that was not submitted by
    /// [`crate::Device::submit`] still writes the BO.
    pub fn read(&self, until: Deadline) -> Result<CpuRead<'_>, Error> {
        self.prepare(until)?;
        Ok(CpuRead { bo: self })
    }

    /// Waits until no job writes the BO, and returns a guard to read and write it.
    ///
    /// # Errors
    /// As [`Bo::read`].
    pub fn write(&mut self, until: Deadline) -> Result<CpuWrite<'_>, Error> {
        self.prepare_write(until)?;
        Ok(CpuWrite { bo: self })
    }
}

/// Read access to a [`Bo`]. Dropping it does nothing: the CPU's caches hold no newer bytes
/// than memory.
#[derive(Debug)]
pub struct CpuRead<'a> {
    bo: &'a Bo,
}

impl<'a> CpuRead<'a> {
    /// The bytes as values of `T`, as many as fit.
    #[must_use]
    pub fn as_slice_of<T: FromBytes + Immutable + KnownLayout>(&self) -> &[T] {
        let whole = self.len() - self.len() % size_of::<T>().max(1);
        // A page is aligned for every type there is, so this cannot fail.
        <[T]>::ref_from_bytes(&self[..whole]).unwrap_or_default()
    }
}

impl Deref for CpuRead<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        bytes(self.bo)
    }
}

/// Read and write access to a [`Bo`]. [`CpuWrite::finish`] gives the object back to the NPU
/// and returns the error if that fails; dropping the guard logs it.
#[derive(Debug)]
pub struct CpuWrite<'a> {
    bo: &'a mut Bo,
}

impl<'a> CpuWrite<'a> {
    /// The bytes as values of `T`, as many as fit.
    #[must_use]
    pub fn as_mut_slice_of<T: FromBytes + IntoBytes + KnownLayout>(&mut self) -> &mut [T] {
        let bytes: &mut [u8] = self;
        let whole = bytes.len() - bytes.len() % size_of::<T>().max(1);
        // A page is aligned for every type there is, so this cannot fail.
        <[T]>::mut_from_bytes(&mut bytes[..whole]).unwrap_or_default()
    }

    /// Gives the object back to the NPU.
    ///
    /// # Errors
    /// When FINI_BO fails.
    pub fn finish(self) -> Result<(), Error> {
        let guard = ManuallyDrop::new(self);
        guard.bo.give_back()
    }
}

impl Deref for CpuWrite<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        bytes(self.bo)
    }
}

impl DerefMut for CpuWrite<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let memory = self.bo.memory();
        // SAFETY: `MappedMemory` and `map_bo` promise `len` initialised, writable bytes at
        // `as_ptr` as long as the mapping lives. The `Bo` owns the mapping, so the mapping
        // outlives the borrow of the `Bo`. The borrow is unique. The head of this module
        // explains why the device does not access the bytes.
        unsafe { slice::from_raw_parts_mut(memory.as_ptr(), memory.len()) }
    }
}

impl Drop for CpuWrite<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.bo.give_back() {
            tracing::warn!(%error, "a buffer object cannot be given back");
        }
    }
}

fn bytes(bo: &Bo) -> &[u8] {
    let memory = bo.memory();
    // SAFETY: as in `deref_mut`, for reading: holders of a shared borrow of the `Bo` only
    // read, and a unique borrow excludes them.
    unsafe { slice::from_raw_parts(memory.as_ptr(), memory.len()) }
}
