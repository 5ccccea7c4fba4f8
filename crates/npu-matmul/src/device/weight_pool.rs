// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for the weights of one device. Small matrices share buffer objects, so that bytes limit
//! the number of objects, not matrices: each object is a mapping of the process, and a model with
//! experts has tens of thousands of matrices.

use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

use rocket_uapi::{Bo, Deadline, Error, FrozenBo};

use crate::numbers::sync::lock;

/// Most bytes of a shared buffer object. FINI_BO cleans all of it for each added block.
pub(crate) const CHUNK_BYTES: usize = 4 << 20;

/// Largest block that shares a buffer object of `chunk` bytes; larger blocks have separate ones. So
/// a chunk without room for another block is mostly full.
pub(crate) const fn shared_bytes_max(chunk: usize) -> usize {
    chunk / 8
}

/// Alignment of blocks in a chunk, the same as of separate buffer objects.
const ALIGNMENT: usize = rocket_uapi::PAGE_BYTES;

/// A shared buffer object and its free ranges.
struct Chunk(Mutex<ChunkState>);

struct ChunkState {
    bo: FrozenBo,
    /// Sorted, and not adjacent.
    free: Vec<Range<usize>>,
}

/// The chunks of one device that may have free space.
pub(crate) struct WeightPool {
    chunks: Mutex<Vec<Weak<Chunk>>>,
    /// Bytes of a chunk.
    chunk_bytes: usize,
}

/// A block of weights in device memory; freed on drop.
pub(crate) struct PoolBlock {
    chunk: Arc<Chunk>,
    /// Its bytes in the buffer object.
    pub(crate) range: Range<usize>,
}

/// Bytes that a block occupies.
const fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

impl ChunkState {
    /// Takes the first free range of `bytes` bytes.
    fn take(&mut self, bytes: usize) -> Option<Range<usize>> {
        let bytes = aligned(bytes);
        let at = self.free.iter().position(|free| free.len() >= bytes)?;
        let free = self.free[at].clone();
        let taken = free.start..free.start + bytes;
        if taken.end == free.end {
            self.free.remove(at);
        } else {
            self.free[at].start = taken.end;
        }
        Some(taken)
    }

    /// Returns a range to the free list.
    fn give(&mut self, range: Range<usize>) {
        let at = self.free.partition_point(|free| free.end < range.start);
        let mut joined = range;
        while let Some(next) = self.free.get(at).filter(|next| next.start <= joined.end) {
            joined = joined.start.min(next.start)..joined.end.max(next.end);
            self.free.remove(at);
        }
        self.free.insert(at, joined);
    }
}

/// Writes `bytes` at `start` of a buffer object and flushes them for the NPU.
fn write(bo: &mut Bo, start: usize, bytes: &[u8]) -> Result<(), Error> {
    let mut memory = bo.write(Deadline::FOREVER)?;
    memory[start..start + bytes.len()].copy_from_slice(bytes);
    memory.finish()
}

impl WeightPool {
    /// Creates an arena of chunks of `chunk_bytes` bytes, in whole pages.
    pub(crate) const fn new(chunk_bytes: usize) -> Self {
        Self {
            chunks: Mutex::new(Vec::new()),
            chunk_bytes,
        }
    }

    /// Creates a block of `bytes` bytes. `fill` gets it zeroed. `alloc` creates a buffer object if
    /// no chunk has room.
    ///
    /// # Errors
    /// The driver's error for its memory.
    pub(crate) fn load(
        &self,
        alloc: impl FnOnce(usize) -> Result<Bo, Error>,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<PoolBlock, Error> {
        if bytes <= shared_bytes_max(self.chunk_bytes) {
            // Filled without holding locks: `fill` may wait for threads that need them.
            let mut packed = vec![0; bytes];
            fill(&mut packed);
            return self.share(alloc, &packed);
        }
        let mut bo = alloc(bytes)?;
        let mut memory = bo.write(Deadline::FOREVER)?;
        fill(&mut memory[..bytes]);
        memory.finish()?;
        let chunk = Chunk::new(bo, Vec::new());
        Ok(PoolBlock {
            chunk: Arc::new(chunk),
            range: 0..aligned(bytes),
        })
    }

    /// Stores a small block in a chunk.
    fn share(
        &self,
        alloc: impl FnOnce(usize) -> Result<Bo, Error>,
        packed: &[u8],
    ) -> Result<PoolBlock, Error> {
        let mut chunks = lock(&self.chunks);
        chunks.retain(|chunk| chunk.strong_count() > 0);
        for chunk in chunks.iter().filter_map(Weak::upgrade) {
            if let Some(range) = chunk.put(packed)? {
                return Ok(PoolBlock { chunk, range });
            }
        }
        let (mut bo, taken) = (alloc(self.chunk_bytes)?, aligned(packed.len()));
        write(&mut bo, 0, packed)?;
        let free = std::iter::once(taken..self.chunk_bytes).collect();
        let chunk = Arc::new(Chunk::new(bo, free));
        chunks.push(Arc::downgrade(&chunk));
        let range = 0..taken;
        Ok(PoolBlock { chunk, range })
    }
}

impl Chunk {
    fn new(bo: Bo, free: Vec<Range<usize>>) -> Self {
        let bo = bo.freeze();
        Self(Mutex::new(ChunkState { bo, free }))
    }

    /// Stores a block if there is room and no job reads the buffer object.
    fn put(&self, packed: &[u8]) -> Result<Option<Range<usize>>, Error> {
        let mut state = lock(&self.0);
        let Some(range) = state.take(packed.len()) else {
            return Ok(None);
        };
        let written = (state.bo.unshared()).map(|bo| write(bo, range.start, packed));
        if let Some(Ok(())) = written {
            return Ok(Some(range));
        }
        state.give(range);
        written.transpose().map(|_| None)
    }
}

impl PoolBlock {
    /// The buffer object that contains the block, for a job. While this is alive, no other block is
    /// written to the buffer object.
    pub(crate) fn buffer(&self) -> FrozenBo {
        lock(&self.chunk.0).bo.clone()
    }
}

impl Drop for PoolBlock {
    fn drop(&mut self) {
        lock(&self.chunk.0).give(self.range.clone());
    }
}

#[cfg(test)]
mod tests {
    use npu_model::Model;
    use proptest::prelude::*;

    use super::*;
    use crate::device::buffers::Buffers;
    use crate::device::memory::MemoryShares;
    use crate::profile::Profile;

    const SHARED_BYTES_MAX: usize = shared_bytes_max(CHUNK_BYTES);

    fn buffers() -> Buffers {
        let device = Model::new(npu_model::ModelOptions::default()).open_device();
        Buffers::new(
            device,
            1,
            &Profile::built_in().choices,
            MemoryShares::of(u64::MAX),
        )
        .unwrap()
    }

    fn load(arena: &WeightPool, buffers: &Buffers, bytes: usize, value: u8) -> PoolBlock {
        arena
            .load(
                |bytes| buffers.alloc_operands(bytes),
                bytes,
                |memory| memory.fill(value),
            )
            .unwrap()
    }

    fn holds(block: &PoolBlock, bytes: usize, value: u8) -> bool {
        let buffer = block.buffer();
        let memory = buffer.read(Deadline::FOREVER).unwrap();
        memory[block.range.start..][..bytes]
            .iter()
            .all(|&byte| byte == value)
    }

    #[test]
    fn large_blocks_have_a_buffer_object_of_their_own() {
        let (arena, buffers) = (WeightPool::new(CHUNK_BYTES), buffers());
        let [small, large, other] =
            [1, SHARED_BYTES_MAX + 1, 4096].map(|bytes| load(&arena, &buffers, bytes, bytes as u8));
        assert_eq!(small.buffer().handle(), other.buffer().handle());
        assert_ne!(small.buffer().handle(), large.buffer().handle());
        assert!(holds(&large, SHARED_BYTES_MAX + 1, 1));
    }

    /// A block added while a job uses a chunk is written to another one.
    #[test]
    fn nothing_is_written_beside_what_a_job_reads() {
        let (arena, buffers) = (WeightPool::new(CHUNK_BYTES), buffers());
        let first = load(&arena, &buffers, 100, 1);
        let held = first.buffer();
        let second = load(&arena, &buffers, 100, 2);
        assert_ne!(second.buffer().handle(), held.handle());
        drop(held);
        let third = load(&arena, &buffers, 100, 3);
        assert_eq!(third.buffer().handle(), first.buffer().handle());
    }

    proptest! {
        #![proptest_config(test_support::cases(32))]

        /// Blocks keep their bytes and no memory is lost, for any order of loads and drops.
        #[test]
        fn blocks_keep_their_bytes(
            steps in prop::collection::vec((1..SHARED_BYTES_MAX, any::<prop::sample::Index>(), any::<bool>()), 1..80),
        ) {
            let (arena, buffers) = (WeightPool::new(CHUNK_BYTES), buffers());
            let mut blocks: Vec<(PoolBlock, usize, u8)> = Vec::new();
            for (step, (bytes, index, goes)) in steps.into_iter().enumerate() {
                if goes && !blocks.is_empty() {
                    blocks.swap_remove(index.index(blocks.len()));
                } else {
                    let value = step as u8;
                    blocks.push((load(&arena, &buffers, bytes, value), bytes, value));
                }
                for (block, bytes, value) in &blocks {
                    prop_assert!(holds(block, *bytes, *value));
                }
            }
            let chunks = lock(&arena.chunks).clone();
            let chunks: Vec<_> = chunks.iter().filter_map(Weak::upgrade).collect();
            let free: usize = chunks.iter().map(|chunk| lock(&chunk.0).free.iter().map(Range::len).sum::<usize>()).sum();
            let used: usize = blocks.iter().map(|(block, ..)| block.range.len()).sum();
            prop_assert_eq!(free + used, chunks.len() * CHUNK_BYTES);
            drop(blocks);
            for chunk in &chunks {
                let free: Vec<_> = std::iter::once(0..CHUNK_BYTES).collect();
                prop_assert_eq!(&lock(&chunk.0).free, &free);
            }
        }
    }
}
