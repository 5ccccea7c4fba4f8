// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffer objects, their handles, and who keeps them alive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rustix::io::Errno;

use super::bugs::Health;
use super::cache::{Cache, Caches};
use super::iommu::AddressSpace;
use super::iova::RangeAllocator;
use super::memory::{PAGE_BYTES, Pages};
use super::resv::Reservation;
use super::{Device, lock};
use crate::event::{Event, MissedCall};

/// Largest buffer object that the driver survives, bytes, exclusive. At
/// 2 GiB the `int` that takes the result of `iommu_map_sgtable` goes
/// negative and the call fails with `ENOMEM` (Linux 7.2, observed).
const BO_LIMIT_BYTES: u32 = 1 << 31;

/// First mmap offset of a DRM device: above what 32 bits can say (Linux,
/// `DRM_FILE_PAGE_OFFSET_START`).
const MMAP_OFFSETS_START: u64 = 1 << 32;

/// End of the mmap offsets (`DRM_FILE_PAGE_OFFSET_SIZE` is 256 times the
/// start).
const MMAP_OFFSETS_END: u64 = MMAP_OFFSETS_START * 257;

/// The mmap offsets of one device: all its files share them.
#[derive(Debug)]
pub(super) struct MmapOffsets {
    allocator: Mutex<RangeAllocator>,
    objects: Mutex<BTreeMap<u64, Weak<GemObject>>>,
    /// Bytes of memory left for buffer objects.
    memory: Mutex<u64>,
}

impl MmapOffsets {
    /// The offsets of a device with so much memory.
    pub(super) fn new(memory: Option<u64>) -> Self {
        Self {
            memory: Mutex::new(memory.unwrap_or(u64::MAX)),
            allocator: Mutex::new(RangeAllocator::new(
                MMAP_OFFSETS_START..MMAP_OFFSETS_END,
                PAGE_BYTES as u64,
            )),
            objects: Mutex::default(),
        }
    }

    /// Takes memory for an object of `size` bytes.
    fn charge(&self, size: u32) -> Result<(), Errno> {
        let mut memory = lock(&self.memory);
        let left = memory.checked_sub(whole_pages(size));
        *memory = left.ok_or(Errno::NOMEM)?;
        Ok(())
    }

    fn refund(&self, size: u32) {
        let mut memory = lock(&self.memory);
        *memory = memory.saturating_add(whole_pages(size));
    }

    /// Bytes, in whole pages, of the objects that each address space has, by its
    /// serial number.
    pub(super) fn bytes_by_space(&self) -> BTreeMap<u64, u64> {
        // Dropping a last reference takes the lock again.
        let objects: Vec<_> = (lock(&self.objects).values())
            .filter_map(Weak::upgrade)
            .collect();
        let mut bytes = BTreeMap::new();
        for object in objects {
            *bytes.entry(object.space.serial).or_default() += whole_pages(object.size);
        }
        bytes
    }

    /// The object whose range starts at `offset`, whichever file it is of.
    pub(super) fn lookup(&self, offset: u64) -> Option<Arc<GemObject>> {
        // The guard is gone at the end of this statement: dropping the
        // result, if it became the last reference, takes the lock again.
        lock(&self.objects).get(&offset)?.upgrade()
    }
}

fn whole_pages(size: u32) -> u64 {
    u64::from(size).next_multiple_of(PAGE_BYTES as u64)
}

/// A buffer object.
///
/// Alive as long as a handle, a mapping, a dma-buf or an unfinished job
/// refers to it. Only then its IOVA, its mmap offset and its pages are free.
#[derive(Debug)]
pub(super) struct GemObject {
    /// Bytes, as CREATE_BO was asked for them.
    size: u32,
    pages: Arc<Pages>,
    mmap_offset: u64,
    offsets: Arc<MmapOffsets>,
    /// Start in the address space of the file that created it. No other file
    /// ever gets an address for it.
    iova: u64,
    space: Arc<AddressSpace>,
    reservation: Reservation,
    /// Whether there ever was a dma-buf of it.
    /// Once there was a dma-buf of it: whether that can be written.
    exported: OnceLock<bool>,
    health: Arc<Health>,
    cache: Option<Cache>,
    /// Handles of it in all files. Changed under the lock of the names.
    pub(super) handles: AtomicUsize,
}

impl GemObject {
    /// Allocates pages, an IOVA in `space` and an mmap offset.
    ///
    /// # Errors
    /// `ENOSPC` for size 0 and for a full address space, `ENOMEM` from
    /// [`BO_LIMIT_BYTES`] on and where host or board have no memory.
    pub(super) fn create(
        size: u32,
        device: &Device,
        space: &Arc<AddressSpace>,
    ) -> Result<Arc<Self>, Errno> {
        if size == 0 {
            return Err(Errno::NOSPC);
        }
        device.offsets.charge(size)?;
        let object = Self::allocate(size, device, space);
        if object.is_err() {
            device.offsets.refund(size);
        }
        object
    }

    fn allocate(size: u32, device: &Device, space: &Arc<AddressSpace>) -> Result<Arc<Self>, Errno> {
        if size >= BO_LIMIT_BYTES {
            return Err(device.health.huge_bo(size, space));
        }
        let offsets = &device.offsets;
        let pages = Arc::new(Pages::new(size as usize, device.options.backing)?);
        let cache = match device.options.caches {
            Caches::Coherent => None,
            Caches::Manual => Some(Cache::new(pages.len())?),
        };
        let mmap_offset = lock(&offsets.allocator)
            .allocate(pages.len() as u64)
            .ok_or(Errno::NOSPC)?;
        let iova = space
            .map(size, cache.as_ref().map_or(&pages, Cache::device))
            .inspect_err(|_| lock(&offsets.allocator).free(mmap_offset))?;
        let object = Arc::new(Self {
            size,
            pages,
            mmap_offset,
            offsets: Arc::clone(offsets),
            iova,
            space: Arc::clone(space),
            reservation: Reservation::default(),
            exported: OnceLock::new(),
            health: Arc::clone(&device.health),
            cache,
            handles: AtomicUsize::new(0),
        });
        lock(&offsets.objects).insert(mmap_offset, Arc::downgrade(&object));
        Ok(object)
    }

    /// The address space of the file that created it.
    pub(super) fn space(&self) -> &Arc<AddressSpace> {
        &self.space
    }

    /// PREP_BO's part that does not wait.
    pub(super) fn sync_for_cpu(&self) {
        if self
            .cache
            .as_ref()
            .is_some_and(|c| c.invalidate(&self.pages))
        {
            self.missed(MissedCall::FiniBeforePrep);
        }
    }

    /// FINI_BO.
    pub(super) fn sync_for_device(&self) {
        if self
            .cache
            .as_ref()
            .is_some_and(|c| c.write_back(&self.pages))
        {
            self.missed(MissedCall::PrepBeforeWrite);
        }
    }

    /// A job that lists it is about to start.
    pub(super) fn look_at_cache(&self) {
        if self.cache.as_ref().is_some_and(|c| c.is_dirty(&self.pages)) {
            self.missed(MissedCall::FiniBeforeSubmit);
        }
    }

    /// A job that writes it has ended.
    pub(super) fn note_npu_write(&self) {
        if let Some(cache) = &self.cache {
            cache.note_write();
        }
    }

    fn missed(&self, call: MissedCall) {
        self.health.events.push(Event::MissedCall {
            iova: self.iova,
            call,
        });
    }

    /// Whether any file has a handle of it.
    pub(super) fn has_handles(&self) -> bool {
        self.handles.load(Ordering::Acquire) > 0
    }

    /// Notes that there is a dma-buf of it. The first one is kept, and so
    /// decides for all whether they can be written: returns that.
    pub(super) fn mark_exported(&self, writable: bool) -> bool {
        *self.exported.get_or_init(|| writable)
    }

    /// Whether there ever was a dma-buf of it.
    pub(super) fn was_exported(&self) -> bool {
        self.exported.get().is_some()
    }

    pub(super) fn pages(&self) -> &Pages {
        &self.pages
    }

    pub(super) fn mmap_offset(&self) -> u64 {
        self.mmap_offset
    }

    pub(super) fn iova(&self) -> u64 {
        self.iova
    }

    /// The fences on it.
    pub(super) fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    /// Whether it is of the device with these offsets.
    pub(super) fn is_of(&self, offsets: &Arc<MmapOffsets>) -> bool {
        Arc::ptr_eq(&self.offsets, offsets)
    }
}

impl Drop for GemObject {
    fn drop(&mut self) {
        if self.space.life.is_over() {
            self.health.object_outlived_file();
        }
        self.space.unmap(self.iova);
        lock(&self.offsets.objects).remove(&self.mmap_offset);
        lock(&self.offsets.allocator).free(self.mmap_offset);
        self.offsets.refund(self.size);
    }
}

/// The handles of one file: the lowest free integer from 1 on.
#[derive(Debug, Default)]
pub(super) struct HandleTable {
    /// Index is the handle less 1.
    slots: Vec<Option<Arc<GemObject>>>,
    free: BTreeSet<usize>,
    /// Handles of objects that are gone; see
    /// [`Bug::DanglingHandle`](super::Bug::DanglingHandle).
    dangling: BTreeSet<usize>,
}

impl HandleTable {
    /// Gives `object` a handle.
    pub(super) fn insert(&mut self, object: Arc<GemObject>) -> Result<u32, Errno> {
        self.insert_slot(Some(object))
    }

    /// Takes a handle for an object that is gone.
    pub(super) fn insert_dangling(&mut self) -> Result<u32, Errno> {
        let handle = self.insert_slot(None)?;
        self.dangling.extend(Self::index(handle));
        Ok(handle)
    }

    /// Whether `handle` is one for an object that is gone.
    pub(super) fn is_dangling(&self, handle: u32) -> bool {
        Self::index(handle).is_some_and(|index| self.dangling.contains(&index))
    }

    /// Whether there is any such handle.
    pub(super) fn has_dangling(&self) -> bool {
        !self.dangling.is_empty()
    }

    fn insert_slot(&mut self, slot: Option<Arc<GemObject>>) -> Result<u32, Errno> {
        if let Some(index) = self.free.pop_first() {
            self.slots[index] = slot;
            return Self::handle(index);
        }
        let handle = Self::handle(self.slots.len())?;
        self.slots.push(slot);
        Ok(handle)
    }

    /// The handle that `object` already has here.
    pub(super) fn find(&self, object: &Arc<GemObject>) -> Option<u32> {
        let index = self
            .slots
            .iter()
            .position(|slot| slot.as_ref().is_some_and(|own| Arc::ptr_eq(own, object)))?;
        Self::handle(index).ok()
    }

    pub(super) fn get(&self, handle: u32) -> Option<&Arc<GemObject>> {
        self.slots.get(Self::index(handle)?)?.as_ref()
    }

    pub(super) fn remove(&mut self, handle: u32) -> Option<Arc<GemObject>> {
        let index = Self::index(handle)?;
        let object = self.slots.get_mut(index)?.take()?;
        self.free.insert(index);
        Some(object)
    }

    /// Takes all objects out.
    pub(super) fn drain(&mut self) -> Vec<Arc<GemObject>> {
        self.free.clear();
        std::mem::take(&mut self.slots)
            .into_iter()
            .flatten()
            .collect()
    }

    /// Number of handles that are in use.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn handle(index: usize) -> Result<u32, Errno> {
        // The kernel's IDR hands out positive `int`s.
        i32::try_from(index + 1)
            .map(i32::unsigned_abs)
            .map_err(|_| Errno::NOSPC)
    }

    fn index(handle: u32) -> Option<usize> {
        usize::try_from(handle).ok()?.checked_sub(1)
    }
}
