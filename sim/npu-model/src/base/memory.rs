// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of a buffer object, and every `unsafe` block of the driver half.
//!
//! The NPU side never holds a `&[u8]` or `&mut [u8]` to these pages: it copies
//! relaxed atomic words. So no register program causes a data race between threads
//! of the model, not even two jobs that write the same bytes at once. The bytes are
//! then unspecified, as on silicon. Every access uses whole aligned words (edges by
//! compare-and-swap), so accesses of different sizes never overlap.
//!
//! The CPU side may make plain slices of the same memory under the rule that
//! `rocket-uapi` enforces for its safe types: while such a slice lives, no job that
//! names this buffer object is in flight. Clients of the raw interfaces must keep
//! this rule themselves.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::{OnceLock, PoisonError, RwLock};

use memmap2::{MmapOptions, MmapRaw};
use rocket_uapi::words;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

/// Page size of the kernel configuration that is modelled, bytes.
pub(crate) const PAGE_BYTES: usize = 4096;

const WORD_BYTES: usize = size_of::<u64>();

const PAGE_WORDS: usize = PAGE_BYTES / WORD_BYTES;

/// The host memory of buffer objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// Anonymous memory. It moves into a memfd when it is exported or mapped by its
    /// offset, so only then does it take a file descriptor.
    #[default]
    Mapped,
    /// The heap of this process, for interpreters without memfd such as Miri.
    /// Export fails with `EOPNOTSUPP`. Every mapping is the same pages, readable
    /// and writable.
    Heap,
}

/// One page of the heap variant.
#[repr(C, align(4096))]
#[derive(Debug)]
struct HeapPage([AtomicU64; PAGE_WORDS]);

#[derive(Debug)]
enum Store {
    Mapped(MappedStore),
    Heap(Box<[HeapPage]>),
}

/// A private anonymous mapping. The first call of [`MappedStore::file`] replaces it
/// by a shared mapping of that memfd, at the same address.
#[derive(Debug)]
struct MappedStore {
    map: MmapRaw,
    file: OnceLock<OwnedFd>,
    /// Locked for writing while the bytes move into the file. Before that, each
    /// copy in or out locks it for reading.
    moving: RwLock<()>,
}

/// Zeroed, page-aligned memory that CPU and NPU share.
#[derive(Debug)]
pub(crate) struct Pages {
    store: Store,
    /// A multiple of [`PAGE_BYTES`], never 0.
    len: usize,
}

/// The errno of an I/O error, such as one of mmap.
fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::NOMEM)
}

impl MappedStore {
    /// Maps `len` zero bytes.
    ///
    /// # Errors
    /// `ENOMEM` if the host has no memory, address space or mapping left.
    fn new(len: usize) -> Result<Self, Errno> {
        let map = MmapOptions::new()
            .len(len)
            .no_reserve_swap()
            .map_anon()
            .map_err(|error| errno(&error))?;
        Ok(Self {
            map: MmapRaw::from(map),
            file: OnceLock::new(),
            moving: RwLock::new(()),
        })
    }

    /// The memfd with the bytes. The first call moves them there.
    ///
    /// A write by the CPU through [`Pages::as_ptr`] that happens during the move
    /// may be lost. Safe clients cannot cause that: a mapping by offset makes the
    /// file before the client has a pointer, and export takes the `Bo` by value,
    /// so no slice of it lives. A client of the raw ioctls must not write an
    /// object while it exports it for the first time.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    fn file(&self) -> Result<&OwnedFd, Errno> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let _moving = self.moving.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let len = self.map.len();
        // The preload library recognises mappings by this name.
        let file =
            rustix::fs::memfd_create("rocket-bo", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        // A client that gets the file by PRIME export must not be able to shrink
        // it: a later access to the mapping would be a SIGBUS.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        self.copy_into(&file)?;
        self.replace_by(&file)?;
        Ok(self.file.get_or_init(|| file))
    }

    /// Copies the bytes that are not zero into a file of zeroes.
    fn copy_into(&self, file: &OwnedFd) -> Result<(), Errno> {
        let mut page = [0; PAGE_BYTES];
        for at in (0..self.map.len()).step_by(PAGE_BYTES) {
            words::load(self.words(), at, &mut page);
            if page == [0; PAGE_BYTES] {
                continue;
            }
            let mut done = 0;
            while done < PAGE_BYTES {
                done += rustix::io::pwrite(file, &page[done..], (at + done) as u64)?;
            }
        }
        Ok(())
    }

    /// Maps `file`, which has the same bytes, over the memory.
    fn replace_by(&self, file: &OwnedFd) -> Result<(), Errno> {
        let (place, len) = (self.map.as_mut_ptr().cast(), self.map.len());
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: `place` and `len` are exactly those of `map`, which this owns, so
        // nothing else is replaced. Dropping `map` unmaps that range whatever is
        // there. The file has `len` bytes, is sealed against shrinking, and has the
        // bytes that are replaced: the lock that the caller holds excludes copies
        // by the model, and the promise of `Self::file` all other writers. So all
        // words keep their values.
        let mapped = unsafe { rustix::mm::mmap(place, len, prot, flags, file, 0) };
        let Err(errno) = mapped else {
            return Ok(());
        };
        // A kernel that refuses may have removed the old mapping first.
        // SAFETY: reads and changes no memory: it fails for an unmapped range.
        if unsafe { rustix::mm::msync(place, len, MsyncFlags::ASYNC) }.is_err() {
            tracing::error!(%errno, len, "the kernel took the memory of a buffer object away");
            std::process::abort();
        }
        Err(errno)
    }

    fn words(&self) -> &[AtomicU64] {
        let base = self.map.as_mut_ptr().cast::<AtomicU64>();
        // SAFETY: `map` is a read-write mapping of exactly `map.len()` bytes of
        // anonymous memory or of a sealed memfd (`replace_by` leaves no gap), so
        // it stays valid for the lifetime of `self`, is initialised (zero
        // pages), and is aligned to a page. `AtomicU64` has no invalid values
        // and allows other parties to change it.
        unsafe { std::slice::from_raw_parts(base, self.map.len() / WORD_BYTES) }
    }

    /// Calls `access` on the words. The bytes do not move meanwhile.
    fn access(&self, access: impl FnOnce(&[AtomicU64])) {
        // The bytes move only once, so no lock is needed afterwards.
        let _staying = (self.file.get().is_none())
            .then(|| self.moving.read().unwrap_or_else(PoisonError::into_inner));
        access(self.words());
    }
}

impl Pages {
    /// `len` bytes, rounded up to pages.
    ///
    /// # Errors
    /// `ENOMEM` if the host has no memory, address space or mapping left.
    pub(crate) fn new(len: usize, backing: Backing) -> Result<Self, Errno> {
        let len = len
            .max(1)
            .checked_next_multiple_of(PAGE_BYTES)
            .ok_or(Errno::NOMEM)?;
        let store = match backing {
            Backing::Mapped => Store::Mapped(MappedStore::new(len).inspect_err(|errno| {
                tracing::warn!(%errno, len, "no memory for a buffer object");
            })?),
            Backing::Heap => Self::heap(len)?,
        };
        Ok(Self { store, len })
    }

    fn heap(len: usize) -> Result<Store, Errno> {
        let count = len / PAGE_BYTES;
        let mut pages = Vec::new();
        pages.try_reserve_exact(count).map_err(|_| Errno::NOMEM)?;
        pages.extend((0..count).map(|_| HeapPage([const { AtomicU64::new(0) }; PAGE_WORDS])));
        Ok(Store::Heap(pages.into_boxed_slice()))
    }

    /// Length in bytes, a multiple of the page size.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// First byte; valid for reads and writes of `len()` bytes as long as
    /// `self` lives.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        match &self.store {
            Store::Mapped(store) => store.map.as_mut_ptr(),
            Store::Heap(pages) => pages.as_ptr().cast_mut().cast(),
        }
    }

    /// The file behind the pages; `None` if there is none, or not yet.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.store {
            Store::Mapped(store) => store.file.get().map(AsFd::as_fd),
            Store::Heap(_) => None,
        }
    }

    /// The file behind the pages, which the first call makes. No CPU code may write
    /// the pages meanwhile.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for the heap variant; `EMFILE`, `ENFILE`, `ENOMEM`.
    pub(crate) fn make_file(&self) -> Result<BorrowedFd<'_>, Errno> {
        match &self.store {
            Store::Mapped(store) => store.file().map(AsFd::as_fd),
            Store::Heap(_) => Err(Errno::OPNOTSUPP),
        }
    }

    /// Whether the pages are on the heap, where they have no file.
    pub(crate) fn is_heap(&self) -> bool {
        matches!(self.store, Store::Heap(_))
    }

    /// Maps the first `len` bytes once more, with the given protection (a writable
    /// mapping may be readable too).
    ///
    /// # Errors
    /// Those of [`Self::make_file`], `EINVAL` for length 0 or beyond the end, else
    /// those of mmap.
    pub(crate) fn map_again(&self, len: usize, prot: ProtFlags) -> Result<MmapRaw, Errno> {
        if len == 0 || len > self.len {
            return Err(Errno::INVAL);
        }
        let fd = self.make_file()?;
        let mut options = MmapOptions::new();
        options.len(len);
        let map = if prot.contains(ProtFlags::WRITE) {
            options.map_raw(&fd)
        } else if prot.contains(ProtFlags::EXEC) {
            // SAFETY: a file mapping is undefined behaviour only through
            // references to bytes that change. The `Mmap` is turned into an
            // `MmapRaw` at once and no reference is made from it. The file
            // cannot shrink below `len`: it is sealed.
            unsafe { options.map_exec(&fd) }.map(MmapRaw::from)
        } else {
            options.map_raw_read_only(&fd)
        };
        map.map_err(|error| errno(&error))
    }

    /// Calls `access` on the words of the pages.
    fn access(&self, access: impl FnOnce(&[AtomicU64])) {
        match &self.store {
            Store::Mapped(store) => store.access(access),
            Store::Heap(pages) => {
                let base = pages.as_ptr().cast::<AtomicU64>();
                // SAFETY: `HeapPage` is `repr(C)` and an array of exactly
                // `PAGE_BYTES` bytes of `AtomicU64` without padding, so the
                // boxed slice is `self.len / 8` words in one allocation.
                access(unsafe { std::slice::from_raw_parts(base, self.len / WORD_BYTES) });
            }
        }
    }

    /// Copies bytes `offset..` into `out`. The caller has checked the range; bytes
    /// beyond the end are left alone.
    pub(crate) fn load(&self, offset: usize, out: &mut [u8]) {
        self.access(|words| words::load(words, offset, out));
    }

    /// Copies `data` to bytes `offset..`. The caller has checked the range; bytes
    /// beyond the end are dropped.
    pub(crate) fn store(&self, offset: usize, data: &[u8]) {
        self.access(|words| words::store(words, offset, data));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn backings() -> Vec<Backing> {
        if cfg!(miri) {
            vec![Backing::Heap]
        } else {
            vec![Backing::Heap, Backing::Mapped]
        }
    }

    #[test]
    fn fresh_pages_are_zero_and_rounded() {
        for backing in backings() {
            let pages = Pages::new(4097, backing).unwrap();
            assert_eq!(pages.len(), 8192);
            assert_eq!(pages.as_ptr() as usize % PAGE_BYTES, 0);
            let mut all = vec![1; 8192];
            pages.load(0, &mut all);
            assert!(all.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn a_second_mapping_shows_the_same_bytes() {
        if cfg!(miri) {
            return;
        }
        let pages = Pages::new(4096, Backing::Mapped).unwrap();
        pages.store(5, b"abc");
        for prot in [
            ProtFlags::READ,
            ProtFlags::READ | ProtFlags::WRITE,
            ProtFlags::READ | ProtFlags::EXEC,
        ] {
            let map = pages.map_again(4096, prot).unwrap();
            let sixth = map.as_ptr().wrapping_add(6);
            // SAFETY: byte 6 lies within the 4096 bytes mapped readable.
            assert_eq!(unsafe { sixth.read() }, b'b');
        }
        assert_eq!(
            pages.map_again(4097, ProtFlags::READ).err(),
            Some(Errno::INVAL)
        );
    }

    /// The move into the file loses no write of the NPU side and keeps the address.
    #[test]
    fn bytes_move_into_a_file_unseen() {
        if cfg!(miri) {
            return;
        }
        const PAGES: usize = 64;
        for _ in 0..20 {
            let pages = Pages::new(PAGES * PAGE_BYTES, Backing::Mapped).unwrap();
            let place = pages.as_ptr();
            assert!(pages.file().is_none(), "no descriptor yet");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for page in 0..PAGES {
                        pages.store(page * PAGE_BYTES + page, &[page as u8 + 1; 8]);
                    }
                });
                pages.make_file().unwrap();
            });
            assert_eq!(pages.as_ptr(), place);
            let map = pages
                .map_again(PAGES * PAGE_BYTES, ProtFlags::READ)
                .unwrap();
            for page in 0..PAGES {
                let mut seen = [0; 8];
                pages.load(page * PAGE_BYTES + page, &mut seen);
                assert_eq!(seen, [page as u8 + 1; 8]);
                let at = map.as_ptr().wrapping_add(page * PAGE_BYTES + page);
                // SAFETY: within the mapping, which is readable.
                assert_eq!(unsafe { at.read() }, page as u8 + 1);
            }
        }
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn copies_match_a_plain_vector(
            writes in prop::collection::vec((0usize..200, prop::collection::vec(any::<u8>(), 0..40)), 1..12),
            from in 0usize..200,
            len in 0usize..50,
        ) {
            for backing in backings() {
                let pages = Pages::new(1, backing).unwrap();
                let mut plain = vec![0u8; PAGE_BYTES];
                for (at, data) in &writes {
                    pages.store(*at, data);
                    plain[*at..at + data.len()].copy_from_slice(data);
                }
                let mut out = vec![0; len];
                pages.load(from, &mut out);
                prop_assert_eq!(&out[..], &plain[from..from + len]);
            }
        }

        /// Ranges past the end never panic and never reach other memory.
        #[test]
        fn the_end_is_the_end(at in 4080usize..4200, data in prop::collection::vec(any::<u8>(), 0..40)) {
            let pages = Pages::new(1, Backing::Heap).unwrap();
            pages.store(at, &data);
            let mut out = vec![0; data.len()];
            pages.load(at, &mut out);
            let inside = PAGE_BYTES.saturating_sub(at).min(data.len());
            prop_assert_eq!(&out[..inside], &data[..inside]);
        }
    }
}
