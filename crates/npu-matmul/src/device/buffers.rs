// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reuse of a device's buffer objects from call to call.
//!
//! A new buffer costs a system call, zeroed pages, and mappings for the CPU and the NPU. Callers
//! mostly multiply the same shapes again, as every layer of a language model does, and then get the
//! buffers of the previous call. Another number of rows takes buffers that are a little larger than
//! it needs; not much, since PREP_BO and FINI_BO maintain the caches of a whole buffer, even if
//! little of it is used.
//!
//! Programs contain buffer addresses. So the next matmul with the same weights and row count mostly
//! needs exactly the programs of the last one: nothing is emitted, linked or copied to the device.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use rknpu_regcmd::{Binding, LinkedProgram};
use rocket_uapi::{Bo, ByteLen, Device, Error, FrozenBo, PAGE_BYTES, ProgramBo};

use crate::device::memory::MemoryShares;
use crate::device::weight_pool::WeightPool;
use crate::numbers::cache::{KeptLimits, LruMap};
use crate::numbers::sync::lock;
use crate::plan::kept_plan::JobId;
use crate::profile::Choices;

/// Buffers that a device keeps for reuse: each is a mapping of the process.
pub(crate) const IDLE_BUFFERS_MAX: usize = 512;

/// A buffer is reused if it exceeds what is needed by at most this part of it.
pub(crate) const REUSE_WASTE: usize = 4;

/// Limits of idle program buffers on a device. Only programs reuse them: programs contain buffer
/// addresses, so buffers should keep their roles.
const IDLE_PROGRAMS: KeptLimits = KeptLimits {
    count: 64,
    bytes: 16 << 20,
};

/// Jobs whose programs are kept. Each has a buffer object, which is a mapping.
pub(crate) const PROGRAMS_KEPT: usize = 8192;

/// Buffers kept for reuse.
struct IdleBuffers {
    /// Oldest first.
    free: Mutex<VecDeque<Bo>>,
    most: KeptLimits,
}

/// The programs of one job.
#[derive(Debug)]
pub(crate) struct ProgramSet {
    /// The programs as they were submitted.
    pub(crate) linked: Vec<LinkedProgram>,
    /// The buffer object that holds them.
    pub(crate) bo: ProgramBo,
}

impl ProgramSet {
    /// Bytes of both copies.
    fn bytes(&self) -> usize {
        let linked = self.linked.iter().map(LinkedProgram::heap_bytes);
        self.bo.bo().len() + linked.sum::<usize>()
    }
}

/// Everything that the programs of a job depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProgramsKey {
    pub(crate) job: JobId,
    /// Activations, weights and output.
    pub(crate) operands: [Binding; 3],
}

/// A device with its buffers.
pub(crate) struct Buffers {
    pub(crate) device: Device,
    /// Whether the device is the software model.
    pub(crate) is_model: bool,
    /// Bytes behind the data that the NPU reads; see [`Choices::slack_bytes`].
    slack_bytes: usize,
    /// The page at address 0 of the open file: neither operands nor programs lie there
    /// (E-guard-page).
    _guard: Bo,
    /// The resident weights.
    pub(crate) weights: WeightPool,
    /// The programs of the latest jobs.
    programs: LruMap<ProgramsKey, Arc<ProgramSet>>,
    idle: IdleBuffers,
    idle_programs: IdleBuffers,
}

impl Buffers {
    /// Creates the buffers of one of `devices` devices, which keep their part of `shares`.
    ///
    /// # Errors
    /// No memory for the guard page.
    pub(crate) fn new(
        device: Device,
        devices: usize,
        choices: &Choices,
        shares: MemoryShares,
    ) -> Result<Self, Error> {
        let guard = device.alloc(ByteLen::new(PAGE_BYTES)?)?;
        // The devices share the limits. Idle buffers count toward them, too.
        let share = |most: usize| most / devices.max(1);
        let program_bytes = share(shares.programs());
        let idle_programs = KeptLimits {
            count: IDLE_PROGRAMS.count,
            bytes: IDLE_PROGRAMS.bytes.min(program_bytes / 4),
        };
        let programs = KeptLimits {
            count: share(PROGRAMS_KEPT).saturating_sub(idle_programs.count),
            bytes: program_bytes - idle_programs.bytes,
        };
        let idle = KeptLimits {
            count: IDLE_BUFFERS_MAX,
            bytes: shares.idle(devices),
        };
        Ok(Self {
            is_model: device.info().is_model,
            slack_bytes: choices.slack_bytes.value,
            _guard: guard,
            device,
            weights: WeightPool::new(shares.chunk(devices)),
            programs: LruMap::with_limits(programs, |programs| programs.bytes()),
            idle: IdleBuffers::new(idle),
            idle_programs: IdleBuffers::new(idle_programs),
        })
    }

    /// Returns a buffer of at least `bytes` bytes, in whole pages, with arbitrary contents. Put it back
    /// with [`Buffers::put`]; a dropped buffer is freed, so error paths lose nothing.
    pub(crate) fn take(&self, bytes: usize) -> Result<Bo, Error> {
        self.take_of(&self.idle, bytes)
    }

    fn take_of(&self, idle: &IdleBuffers, bytes: usize) -> Result<Bo, Error> {
        let len = ByteLen::new(bytes)?;
        match idle.take(len.page_rounded().get()) {
            Some(bo) => Ok(bo),
            None => self.alloc(len),
        }
    }

    /// As `take`, for an operand that the NPU reads: with slack.
    pub(crate) fn take_operand(&self, bytes: usize) -> Result<Bo, Error> {
        self.take(bytes.saturating_add(self.slack_bytes))
    }

    /// Allocates a new buffer for `bytes` bytes of operands that the NPU reads, with slack.
    pub(crate) fn alloc_operands(&self, bytes: usize) -> Result<Bo, Error> {
        self.alloc(ByteLen::new(bytes.saturating_add(self.slack_bytes))?)
    }

    /// Allocates a new buffer. If memory or addresses run out, it frees all idle buffers and tries
    /// again.
    fn alloc(&self, len: ByteLen) -> Result<Bo, Error> {
        match self.device.alloc(len) {
            Err(error @ Error::OutOfMemory { .. }) => {
                let idle = [&self.idle, &self.idle_programs].map(IdleBuffers::take_all);
                if idle.iter().all(VecDeque::is_empty) {
                    return Err(error);
                }
                drop(idle);
                self.device.alloc(len)
            }
            other => other,
        }
    }

    /// The programs of a job, from the cache or made by `link`, and the bytes written for them.
    pub(crate) fn programs<E>(
        &self,
        key: ProgramsKey,
        link: impl FnOnce(&ProgramsKey) -> Result<Vec<LinkedProgram>, E>,
        failed: impl FnOnce(Error) -> E,
    ) -> Result<(Arc<ProgramSet>, usize), E> {
        let mut written = 0;
        let make = |key: &ProgramsKey| {
            let linked = link(key)?;
            let bo = ProgramBo::place(&linked, |bytes| self.take_of(&self.idle_programs, bytes));
            let bo = bo.map_err(failed)?;
            written = bo.bo().len();
            Ok(Arc::new(ProgramSet { linked, bo }))
        };
        // A job may still use them.
        let recycle = |evicted: Arc<ProgramSet>| {
            let unused = Arc::into_inner(evicted).and_then(|programs| programs.bo.into_bo());
            unused.into_iter().for_each(|bo| self.idle_programs.put(bo));
        };
        let programs = self.programs.get_or_make(key, make, recycle)?;
        Ok((programs, written))
    }

    /// Keeps a buffer for reuse.
    pub(crate) fn put(&self, bo: Bo) {
        self.idle.put(bo);
    }

    /// Keeps a buffer for reuse, unless a job or another owner still has it. Then the last owner
    /// keeps or frees it.
    pub(crate) fn release(&self, bo: FrozenBo) {
        if let Ok(bo) = bo.thaw() {
            self.put(bo);
        }
    }
}

impl IdleBuffers {
    const fn new(most: KeptLimits) -> Self {
        let free = Mutex::new(VecDeque::new());
        Self { free, most }
    }

    /// Returns the smallest buffer of at least this size and little more; of equal ones that at the
    /// lowest address. So the same sequence of matmuls gets the same buffers in the same roles each
    /// time, and finds its programs in the cache.
    fn take(&self, bytes: usize) -> Option<Bo> {
        let sizes = bytes..=bytes.saturating_add(bytes / REUSE_WASTE);
        let mut idle = lock(&self.free);
        let fitting = idle.iter().enumerate();
        let fitting = fitting.filter(|(_, bo)| sizes.contains(&bo.len()));
        let best = fitting.min_by_key(|(_, bo)| (bo.len(), bo.iova().0));
        let at = best.map(|(at, _)| at)?;
        idle.remove(at)
    }

    fn take_all(&self) -> VecDeque<Bo> {
        std::mem::take(&mut *lock(&self.free))
    }

    fn put(&self, bo: Bo) {
        let mut evicted = Vec::new();
        let mut idle = lock(&self.free);
        idle.push_back(bo);
        let mut bytes: usize = idle.iter().map(Bo::len).sum();
        while (bytes > self.most.bytes || idle.len() > self.most.count)
            && let Some(oldest) = idle.pop_front()
        {
            bytes -= oldest.len();
            evicted.push(oldest);
        }
        // Freed without holding the lock.
        drop(idle);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rknpu_regcmd::{BufferId, Iova};
    use test_support::assert_each_field_counts;

    use super::*;

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn keys_of_programs_differ_in_each_field(numbers in [(0..2_usize, 0..2_u32, 0..2_u32), (0..2, 0..2, 0..2)]) {
            let [one, other] = numbers.map(|(step, address, len)| ProgramsKey {
                job: JobId {
                    plan: 0,
                    step,
                    job: 0,
                },
                operands: [0, 1, 2].map(|id| Binding {
                    id: BufferId(id),
                    iova: Iova(address + id),
                    len,
                }),
            });
            assert_each_field_counts!(ProgramsKey { job, operands }, one, other);
            let [one, other] = [one.operands[0], other.operands[1]];
            assert_each_field_counts!(Binding { id, iova, len }, one, other);
        }
    }
}
