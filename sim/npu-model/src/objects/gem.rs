// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffer objects, their handles, and what keeps them alive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use rustix::io::Errno;

use crate::base::bugs::Bug;
use crate::base::cache::{Cache, Caches};
use crate::base::event::{Event, MissedCall};
use crate::base::lock::lock;
use crate::base::memory::{Backing, PAGE_BYTES, Pages};
use crate::base::options::ModelOptions;
use crate::objects::health::Health;
use crate::objects::iommu::AddressSpace;
use crate::objects::iova::RangeAllocator;
use crate::objects::resv::Reservation;

/// Buffer objects must be smaller than this, bytes; see [`Bug::HugeBo`].
/// An `int` for the mapped size overflows: `ENOMEM`.
const BO_LIMIT_BYTES: u32 = 1 << 31;

/// First mmap offset of a DRM device, the first that needs more than 32 bits
/// (Linux, `DRM_FILE_PAGE_OFFSET_START`).
const MMAP_OFFSETS_START: u64 = 1 << 32;

/// End of the mmap offsets (`DRM_FILE_PAGE_OFFSET_SIZE` is 256 times the
/// start).
const MMAP_OFFSETS_END: u64 = MMAP_OFFSETS_START * 257;

/// State that the buffer objects of one device share.
#[derive(Debug)]
pub(crate) struct ObjectPool {
    backing: Backing,
    caches: Caches,
    health: Arc<Health>,
    mmap_offsets: Mutex<RangeAllocator>,
    /// The objects by their mmap offsets.
    objects: Mutex<BTreeMap<u64, Weak<GemObject>>>,
    /// Bytes of memory left for buffer objects.
    memory: Mutex<u64>,
}

impl ObjectPool {
    pub(crate) fn new(options: &ModelOptions, health: &Arc<Health>) -> Self {
        Self {
            backing: options.backing,
            caches: options.caches,
            health: Arc::clone(health),
            mmap_offsets: Mutex::new(RangeAllocator::new(
                MMAP_OFFSETS_START..MMAP_OFFSETS_END,
                PAGE_BYTES as u64,
            )),
            objects: Mutex::default(),
            memory: Mutex::new(options.memory.unwrap_or(u64::MAX)),
        }
    }

    /// A buffer object with pages, an IOVA in `space` and an mmap offset.
    ///
    /// # Errors
    /// `ENOSPC` for size 0 and for a full address space; `ENOMEM` from
    /// [`BO_LIMIT_BYTES`] on, and if host or board have no memory.
    pub(crate) fn create(
        self: &Arc<Self>,
        size: u32,
        space: &Arc<AddressSpace>,
    ) -> Result<Arc<GemObject>, Errno> {
        if size == 0 {
            return Err(Errno::NOSPC);
        }
        self.charge(size)?;
        let object = self.allocate(size, space);
        object.inspect_err(|_| self.refund(size))
    }

    fn allocate(
        self: &Arc<Self>,
        size: u32,
        space: &Arc<AddressSpace>,
    ) -> Result<Arc<GemObject>, Errno> {
        if size >= BO_LIMIT_BYTES {
            return Err(self.health.huge_bo(size, space));
        }
        let pages = Arc::new(Pages::new(size as usize, self.backing)?);
        let cache = match self.caches {
            Caches::Coherent => None,
            Caches::Manual => Some(Cache::new(pages.len())?),
        };
        let mmap_offset = lock(&self.mmap_offsets)
            .allocate(pages.len() as u64)
            .ok_or(Errno::NOSPC)?;
        let iova = space
            .map(size, cache.as_ref().map_or(&pages, Cache::device))
            .inspect_err(|_| lock(&self.mmap_offsets).free(mmap_offset))?;
        let object = Arc::new(GemObject {
            size,
            pages,
            mmap_offset,
            pool: Arc::clone(self),
            iova,
            space: Arc::clone(space),
            reservation: Reservation::default(),
            exported: OnceLock::new(),
            cache,
            core_time: Mutex::default(),
            handles: AtomicUsize::new(0),
        });
        lock(&self.objects).insert(mmap_offset, Arc::downgrade(&object));
        Ok(object)
    }

    /// Reserves memory of the board for an object of `size` bytes.
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

    /// Bytes of all objects of each address space, in whole pages, by the space's
    /// serial number.
    pub(crate) fn bytes_by_space(&self) -> BTreeMap<u64, u64> {
        // Collect first: dropping a last reference takes the lock again.
        let objects: Vec<_> = (lock(&self.objects).values())
            .filter_map(Weak::upgrade)
            .collect();
        let mut bytes = BTreeMap::new();
        for object in objects {
            *bytes.entry(object.space.serial).or_default() += whole_pages(object.size);
        }
        bytes
    }

    /// The object of any file whose mmap range starts at `offset`.
    pub(crate) fn at_offset(&self, offset: u64) -> Option<Arc<GemObject>> {
        // The guard is dropped at the end of this statement. If the result becomes
        // the last reference, dropping it takes the lock again.
        lock(&self.objects).get(&offset)?.upgrade()
    }
}

fn whole_pages(size: u32) -> u64 {
    u64::from(size).next_multiple_of(PAGE_BYTES as u64)
}

/// A buffer object.
///
/// It lives as long as a handle, a mapping, a dma-buf or an unfinished job refers
/// to it. Only after that are its IOVA, its mmap offset and its pages free.
#[derive(Debug)]
pub(crate) struct GemObject {
    /// Size that CREATE_BO requested, bytes, not rounded.
    size: u32,
    pub(crate) pages: Arc<Pages>,
    pub(crate) mmap_offset: u64,
    pool: Arc<ObjectPool>,
    /// Address in the address space of the file that created it. No other file ever
    /// gets an address for it.
    pub(crate) iova: u64,
    /// The address space of the file that created it.
    pub(crate) space: Arc<AddressSpace>,
    pub(crate) reservation: Reservation,
    /// Whether its dma-buf is writable; unset before the first export.
    exported: OnceLock<bool>,
    cache: Option<Cache>,
    /// Modelled time for which the last ended job that writes it held its core.
    core_time: Mutex<Option<Duration>>,
    /// Number of its handles in all files.
    handles: AtomicUsize,
}

impl GemObject {
    /// The cache maintenance of PREP_BO.
    pub(crate) fn sync_for_cpu(&self) {
        self.maintain(Cache::invalidate, MissedCall::FiniBeforePrep);
    }

    /// The cache maintenance of FINI_BO.
    pub(crate) fn sync_for_device(&self) {
        self.maintain(Cache::write_back, MissedCall::PrepBeforeWrite);
    }

    /// Checks the cache before a job that lists the object starts.
    pub(crate) fn check_cache(&self) {
        self.maintain(Cache::is_dirty, MissedCall::FiniBeforeSubmit);
    }

    /// Records that a job that writes the object has ended, and for how long it held its core.
    pub(crate) fn note_npu_write(&self, core_time: Duration) {
        if let Some(cache) = &self.cache {
            cache.note_write();
        }
        *lock(&self.core_time) = Some(core_time);
    }

    /// Modelled time for which the last ended job that writes it held its core.
    pub(crate) fn core_time(&self) -> Option<Duration> {
        *lock(&self.core_time)
    }

    /// Applies an action of the cache. Reports a missed `call` if that finds one.
    fn maintain(&self, action: fn(&Cache, &Pages) -> bool, call: MissedCall) {
        let Some(cache) = &self.cache else {
            return;
        };
        if action(cache, &self.pages) {
            let (events, iova) = (&self.pool.health.events, self.iova);
            events.push(Event::MissedCall { iova, call });
        }
    }

    /// Whether any file has a handle of it.
    pub(crate) fn has_handles(&self) -> bool {
        self.handles.load(Ordering::Acquire) > 0
    }

    /// Records an export as dma-buf. The first one decides whether all are
    /// writable. Returns that decision.
    pub(crate) fn mark_exported(&self, writable: bool) -> bool {
        *self.exported.get_or_init(|| writable)
    }

    pub(crate) fn was_exported(&self) -> bool {
        self.exported.get().is_some()
    }

    /// Whether it belongs to the device with this pool.
    pub(crate) fn is_of(&self, pool: &Arc<ObjectPool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }
}

impl Drop for GemObject {
    fn drop(&mut self) {
        if self.space.life.is_freed() {
            let how = "a job, a mapping or a dma-buf held a buffer object longer than the file";
            self.pool.health.run_into(Bug::UseAfterClose, how);
        }
        self.space.unmap(self.iova);
        lock(&self.pool.objects).remove(&self.mmap_offset);
        lock(&self.pool.mmap_offsets).free(self.mmap_offset);
        self.pool.refund(self.size);
    }
}

/// The handles of one file. A new handle is the lowest free integer from 1 on.
#[derive(Debug, Default)]
pub(crate) struct HandleTable {
    /// The index is the handle less 1.
    slots: Vec<Option<Arc<GemObject>>>,
    free: BTreeSet<usize>,
    /// Indices of handles whose objects are gone; see
    /// [`Bug::DanglingHandle`](crate::driver::Bug::DanglingHandle).
    dangling: BTreeSet<usize>,
}

impl HandleTable {
    pub(crate) fn insert(&mut self, object: Arc<GemObject>) -> Result<u32, Errno> {
        let handle = self.insert_slot(Some(Arc::clone(&object)))?;
        object.handles.fetch_add(1, Ordering::AcqRel);
        Ok(handle)
    }

    /// Allocates a handle whose object is gone.
    pub(crate) fn insert_dangling(&mut self) -> Result<u32, Errno> {
        let handle = self.insert_slot(None)?;
        self.dangling.extend(Self::index(handle));
        Ok(handle)
    }

    /// Whether the object of `handle` is gone.
    pub(crate) fn is_dangling(&self, handle: u32) -> bool {
        Self::index(handle).is_some_and(|index| self.dangling.contains(&index))
    }

    pub(crate) fn has_dangling(&self) -> bool {
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

    pub(crate) fn find(&self, object: &Arc<GemObject>) -> Option<u32> {
        let index = self
            .slots
            .iter()
            .position(|slot| slot.as_ref().is_some_and(|own| Arc::ptr_eq(own, object)))?;
        Self::handle(index).ok()
    }

    pub(crate) fn get(&self, handle: u32) -> Option<&Arc<GemObject>> {
        self.slots.get(Self::index(handle)?)?.as_ref()
    }

    pub(crate) fn remove(&mut self, handle: u32) -> Option<Arc<GemObject>> {
        let index = Self::index(handle)?;
        let object = self.slots.get_mut(index)?.take()?;
        self.free.insert(index);
        object.handles.fetch_sub(1, Ordering::AcqRel);
        Some(object)
    }

    /// Frees all handles and returns their objects.
    pub(crate) fn drain(&mut self) -> Vec<Arc<GemObject>> {
        self.free.clear();
        let slots = std::mem::take(&mut self.slots);
        let objects: Vec<_> = slots.into_iter().flatten().collect();
        for object in &objects {
            object.handles.fetch_sub(1, Ordering::AcqRel);
        }
        objects
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
