// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address space of one open file: its IOMMU domain.
//!
//! Every job of a file can reach all buffer objects of that file, listed or
//! not, and nothing else.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};

use rustix::io::Errno;

use crate::base::lock::lock;
use crate::base::memory::{PAGE_BYTES, Pages};
use crate::objects::iova::RangeAllocator;
use crate::objects::life::Life;

/// Number of address spaces made by this process so far.
static SPACES: AtomicU64 = AtomicU64::new(0);

/// The NPU addresses of one open file, and the pages behind each.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    /// Number in the order of creation.
    pub(crate) serial: u64,
    allocator: Mutex<RangeAllocator>,
    /// Pages of each mapping, by its start.
    mappings: RwLock<BTreeMap<u64, Arc<Pages>>>,
    /// Ranges that stay mapped although the allocator has them as free; see
    /// [`Bug::HugeBo`](crate::driver::Bug::HugeBo).
    left_mapped: Mutex<Vec<Range<u64>>>,
    /// Whether the file is still open.
    pub(crate) life: Life,
}

/// The first byte of an access that has no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmapped(pub(crate) u64);

impl AddressSpace {
    /// An empty address space of `aperture` bytes.
    pub(crate) fn new(aperture: u64, life: Life) -> Self {
        Self {
            // Only the order matters.
            serial: SPACES.fetch_add(1, Ordering::Relaxed),
            allocator: Mutex::new(RangeAllocator::new(0..aperture, PAGE_BYTES as u64)),
            mappings: RwLock::default(),
            left_mapped: Mutex::default(),
            life,
        }
    }

    /// Maps `pages` for a buffer object of `size` bytes and returns the
    /// address. The allocated node has the unrounded size, the mapping whole
    /// pages.
    ///
    /// # Errors
    /// `ENOSPC` if no hole has `size` bytes, `ENOMEM` if the chosen one is
    /// still mapped.
    pub(crate) fn map(&self, size: u32, pages: &Arc<Pages>) -> Result<u64, Errno> {
        let mut allocator = lock(&self.allocator);
        let start = allocator.allocate(u64::from(size)).ok_or(Errno::NOSPC)?;
        let end = start + pages.len() as u64;
        let taken = lock(&self.left_mapped)
            .iter()
            .any(|range| range.start < end && start < range.end);
        if taken {
            allocator.free(start);
            return Err(Errno::NOMEM);
        }
        drop(allocator);
        self.mappings_mut().insert(start, Arc::clone(pages));
        Ok(start)
    }

    pub(crate) fn unmap(&self, iova: u64) {
        self.mappings_mut().remove(&iova);
        lock(&self.allocator).free(iova);
    }

    fn mappings_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, Arc<Pages>>> {
        self.mappings
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves mapped, but not allocated, the range that `size` bytes would get.
    ///
    /// # Errors
    /// `ENOSPC` if no hole has `size` bytes.
    pub(crate) fn leave_mapped(&self, size: u32) -> Result<(), Errno> {
        let size = u64::from(size);
        let mut allocator = lock(&self.allocator);
        let start = allocator.allocate(size).ok_or(Errno::NOSPC)?;
        allocator.free(start);
        let end = start + size.next_multiple_of(PAGE_BYTES as u64);
        lock(&self.left_mapped).push(start..end);
        Ok(())
    }

    pub(crate) fn read(&self, iova: u32, out: &mut [u8]) -> Result<(), Unmapped> {
        let mut rest = out;
        self.for_each_piece(iova, rest.len(), |pages, offset, len| {
            let (piece, tail) = std::mem::take(&mut rest).split_at_mut(len);
            pages.load(offset, piece);
            rest = tail;
        })
    }

    /// Checks that all `len` bytes from `iova` on have a translation.
    pub(crate) fn check(&self, iova: u32, len: usize) -> Result<(), Unmapped> {
        self.for_each_piece(iova, len, |_, _, _| {})
    }

    pub(crate) fn write(&self, iova: u32, data: &[u8]) -> Result<(), Unmapped> {
        let mut rest = data;
        self.for_each_piece(iova, rest.len(), |pages, offset, len| {
            let (piece, tail) = rest.split_at(len);
            pages.store(offset, piece);
            rest = tail;
        })
    }

    /// Splits an access at the borders of mappings: neighbours in IOVA space
    /// are not neighbours in host memory.
    fn for_each_piece(
        &self,
        iova: u32,
        len: usize,
        mut access: impl FnMut(&Pages, usize, usize),
    ) -> Result<(), Unmapped> {
        let mappings = self.mappings.read().unwrap_or_else(PoisonError::into_inner);
        let mut at = u64::from(iova);
        let end = at + len as u64;
        while at < end {
            let (start, pages) = mappings
                .range((Bound::Unbounded, Bound::Included(at)))
                .next_back()
                .ok_or(Unmapped(at))?;
            let Some(offset) = usize::try_from(at - start)
                .ok()
                .filter(|&offset| offset < pages.len())
            else {
                return Err(Unmapped(at));
            };
            let available = (pages.len() - offset) as u64;
            let piece = available.min(end - at);
            // `piece` is at most `len`, a usize.
            access(pages, offset, piece as usize);
            at += piece;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::memory::Backing;
    use crate::base::profile::Iommu;

    fn space() -> AddressSpace {
        AddressSpace::new(Iommu::Rockchip.aperture(), Life::default())
    }

    fn bo(space: &AddressSpace, size: u32) -> u32 {
        let pages = Arc::new(Pages::new(size as usize, Backing::Heap).unwrap());
        u32::try_from(space.map(size, &pages).unwrap()).unwrap()
    }

    #[test]
    fn an_access_may_cross_neighbouring_objects() {
        let space = space();
        assert_eq!((bo(&space, 4096), bo(&space, 8192)), (0, 4096));
        let data: Vec<u8> = (0..100).collect();
        space.write(4050, &data).unwrap();
        let mut out = vec![0; 100];
        space.read(4050, &mut out).unwrap();
        assert_eq!(out, data);
    }

    #[test]
    fn the_first_byte_without_translation_is_named() {
        let space = space();
        let iova = bo(&space, 100);
        assert_eq!(space.read(iova, &mut [0; 4096]), Ok(()), "whole pages");
        assert_eq!(space.read(4000, &mut [0; 200]), Err(Unmapped(4096)));
        assert_eq!(space.check(iova, 4096), Ok(()));
        assert_eq!(space.check(4000, 200), Err(Unmapped(4096)));
        assert_eq!(space.write(u32::MAX, &[0; 8]), Err(Unmapped(0xffff_ffff)));
        space.unmap(u64::from(iova));
        assert_eq!(space.read(iova, &mut [0]), Err(Unmapped(0)));
        assert_eq!(space.read(iova, &mut []), Ok(()));
    }
}
