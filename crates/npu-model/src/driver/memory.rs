// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of a buffer object, and every `unsafe` line of the driver half.
//!
//! The NPU side never holds a `&[u8]` or `&mut [u8]` to these pages: it sees
//! them as relaxed atomic words and copies. So nothing that a register
//! program does, not even two jobs that write the same bytes at once, is a
//! data race between threads of the model; the bytes are then unspecified,
//! as on silicon. Every access uses whole aligned words (edges by
//! compare-and-swap), hence never overlaps one of another size.
//!
//! The CPU side may make plain slices of the same memory under the rule that
//! `rocket-uapi` enforces for its safe types: while such a slice lives no
//! job that names this buffer object is in flight. Clients of raw doors
//! promise it by hand.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};
use rocket_uapi::words;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;

/// Page size of the kernel configuration that is modelled, bytes.
pub(super) const PAGE_BYTES: usize = 4096;

/// Bytes per atomic word.
const WORD_BYTES: usize = size_of::<u64>();

/// Words per page.
const PAGE_WORDS: usize = PAGE_BYTES / WORD_BYTES;

/// What the pages of buffer objects are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// A memfd per buffer object: can be mapped many times and exported.
    #[default]
    Memfd,
    /// The heap of this process: for interpreters without memfd, such as
    /// Miri. Export fails with `EOPNOTSUPP`, and a mapping is always the one
    /// set of pages, readable and writable.
    Heap,
}

/// One page of the heap variant.
#[repr(C, align(4096))]
#[derive(Debug)]
struct HeapPage([AtomicU64; PAGE_WORDS]);

#[derive(Debug)]
enum Store {
    Memfd { fd: OwnedFd, map: MmapRaw },
    Heap(Box<[HeapPage]>),
}

/// Zeroed, page-aligned memory that CPU and NPU share.
#[derive(Debug)]
pub(super) struct Pages {
    store: Store,
    /// A multiple of [`PAGE_BYTES`], never 0.
    len: usize,
}

impl Pages {
    /// `len` bytes, rounded up to pages.
    ///
    /// # Errors
    /// `ENOMEM` where the host has no memory, address space or file
    /// descriptors left.
    pub(super) fn new(len: usize, backing: Backing) -> Result<Self, Errno> {
        let len = len
            .max(1)
            .checked_next_multiple_of(PAGE_BYTES)
            .ok_or(Errno::NOMEM)?;
        let store = match backing {
            Backing::Memfd => Self::memfd(len).map_err(|errno| {
                tracing::warn!(%errno, len, "no memfd for a buffer object");
                Errno::NOMEM
            })?,
            Backing::Heap => Self::heap(len)?,
        };
        Ok(Self { store, len })
    }

    fn memfd(len: usize) -> Result<Store, Errno> {
        let fd =
            rustix::fs::memfd_create("rocket-bo", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        // Whoever gets the file by PRIME export must not be able to take
        // pages away below the mapping: a later access would be a SIGBUS.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = MmapOptions::new()
            .len(len)
            .map_raw(&fd)
            .map_err(|_| Errno::NOMEM)?;
        Ok(Store::Memfd { fd, map })
    }

    fn heap(len: usize) -> Result<Store, Errno> {
        let count = len / PAGE_BYTES;
        let mut pages = Vec::new();
        pages.try_reserve_exact(count).map_err(|_| Errno::NOMEM)?;
        pages.extend((0..count).map(|_| HeapPage([const { AtomicU64::new(0) }; PAGE_WORDS])));
        Ok(Store::Heap(pages.into_boxed_slice()))
    }

    /// Length in bytes, a multiple of the page size.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// First byte; valid for reads and writes of `len()` bytes as long as
    /// `self` lives.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        match &self.store {
            Store::Memfd { map, .. } => map.as_mut_ptr(),
            Store::Heap(pages) => pages.as_ptr().cast_mut().cast(),
        }
    }

    /// The file behind the pages; `None` for the heap variant.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.store {
            Store::Memfd { fd, .. } => Some(fd.as_fd()),
            Store::Heap(_) => None,
        }
    }

    /// Maps the first `len` bytes once more, with the given protection
    /// (which the kernel may relax: reading is always possible where
    /// writing is).
    ///
    /// # Errors
    /// `EOPNOTSUPP` for the heap variant, `EINVAL` for more than there is,
    /// else what mmap says.
    pub(super) fn map_again(&self, len: usize, prot: ProtFlags) -> Result<MmapRaw, Errno> {
        let fd = self.fd().ok_or(Errno::OPNOTSUPP)?;
        if len == 0 || len > self.len {
            return Err(Errno::INVAL);
        }
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
        map.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))
    }

    fn words(&self) -> &[AtomicU64] {
        match &self.store {
            Store::Memfd { map, .. } => {
                let base = map.as_mut_ptr().cast::<AtomicU64>();
                // SAFETY: `map` is a shared read-write mapping of exactly
                // `self.len` bytes of a sealed memfd, so it stays valid for
                // the lifetime of `self`, is initialised (zero pages), and is
                // aligned to a page. `AtomicU64` has no invalid values and
                // allows other parties to change it.
                unsafe { std::slice::from_raw_parts(base, self.len / WORD_BYTES) }
            }
            Store::Heap(pages) => {
                let base = pages.as_ptr().cast::<AtomicU64>();
                // SAFETY: `HeapPage` is `repr(C)` and an array of exactly
                // `PAGE_BYTES` bytes of `AtomicU64` without padding, so the
                // boxed slice is `self.len / 8` words in one allocation.
                unsafe { std::slice::from_raw_parts(base, self.len / WORD_BYTES) }
            }
        }
    }

    /// Copies bytes `offset..` out. Whoever calls has checked the range;
    /// bytes beyond the end are left alone.
    pub(super) fn load(&self, offset: usize, out: &mut [u8]) {
        words::load(self.words(), offset, out);
    }

    /// Copies `data` in from `offset` on. Whoever calls has checked the
    /// range; bytes beyond the end are dropped.
    pub(super) fn store(&self, offset: usize, data: &[u8]) {
        words::store(self.words(), offset, data);
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
            vec![Backing::Heap, Backing::Memfd]
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
        let pages = Pages::new(4096, Backing::Memfd).unwrap();
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
