// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buffers of the host's CPU backend, and the weights packed from them.
//!
//! Packed weights must go with the bytes that they were made from: ggml frees models and reuses
//! addresses. ggml does not notify a backend of buffers of others. But each buffer object carries
//! its own callbacks, and those of the CPU's buffers are replaced by the ones of
//! [`crate::entry::buffer_hooks`] when the buffers are made.
//!
//! ggml assigns a tensor to its buffer before it has data. So all weights of a model are known
//! before it is decided which of them may be on the NPU, and the output matrix comes last. Weights
//! without a decision by then are decided about at their first use: no callback reports that a
//! program reads weights straight into a buffer.

use std::collections::HashMap;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use npu_offload::{OffloadRules, WeightRole};
use rangemap::RangeSet;

use crate::decide::offload;
use crate::decide::patterns::Patterns;
use crate::ggml::abi::{Buffer, usage};
use crate::ggml::footprint::overlap;
use crate::ggml::host::Host;
use crate::ggml::layout::BufferCallbacks;
use crate::ggml::log::LogLevel;
use crate::ggml::ranges::covers;
use crate::ggml::reason::{DeclineReason, LeftOnCpu};
use crate::ggml::shared::{GgmlPtr, lock};
use crate::ggml::tensor_ref::TensorRef;
use crate::ggml::tensor_shape::TensorShape;
use crate::weights::budget::Budget;
use crate::weights::packed_tensor::PackedTensor;
use crate::weights::pieces::TensorPieces;

/// The data that decides which weights may be on the NPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WeightContext<'a> {
    pub(crate) host: &'a Host,
    pub(crate) rules: &'a OffloadRules,
    pub(crate) budget: &'a Arc<Budget>,
    pub(crate) patterns: &'a Patterns,
}

impl WeightContext<'_> {
    /// Logs which weights may be on the NPU, if anything changed, and which could not be packed.
    pub(crate) fn report(&self) {
        if let Some(line) = self.budget.report_failures() {
            self.host.logger.write(LogLevel::Warn, &line);
        }
        if let Some(line) = self.budget.report(self.rules.is_calibrated) {
            self.host.logger.write(LogLevel::Info, &line);
        }
    }
}

/// The order in which weights lie in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WeightOrder {
    /// The order of the model file. They are packed when a matmul first needs them, because with a
    /// mapped file no callback reports when their data is there.
    Plain,
    /// An order of the CPU backend. They are packed while they are written.
    Rearranged,
}

/// What is known about a range that a graph writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrittenRange {
    /// It was reported before, or its buffer is not watched.
    Known,
    /// It is new, and has no weights for the NPU.
    New,
    /// It is new, and weights in it were for the NPU until now.
    Withdrawn,
}

/// Weights in a buffer: everything that packed ones depend on, beside the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PlacedWeights {
    /// Address of the first element.
    address: usize,
    weights: TensorShape,
}

impl PlacedWeights {
    pub(crate) fn of(tensor: TensorRef<'_>) -> Self {
        Self {
            address: tensor.address(),
            weights: tensor.descriptor(),
        }
    }
}

/// A tensor that may be weights, without a decision yet.
#[derive(Debug)]
struct UndecidedTensor {
    name: String,
    place: PlacedWeights,
}

impl UndecidedTensor {
    fn new(tensor: TensorRef<'_>) -> Self {
        Self {
            name: tensor.name(),
            place: PlacedWeights::of(tensor),
        }
    }
}

/// A buffer of the host, and the weights packed from it.
#[derive(Debug)]
pub(crate) struct WatchedBuffer {
    buffer: GgmlPtr<Buffer>,
    pub(crate) order: WeightOrder,
    /// The callbacks that the host gave it.
    pub(crate) originals: BufferCallbacks,
    candidates: Mutex<Vec<UndecidedTensor>>,
    /// Number of tensors without a decision, including those that are being decided about.
    waiting: AtomicUsize,
    /// Whether the output matrix has a decision.
    has_output: AtomicBool,
    /// Tensors with a decision, whatever their names.
    decided: Mutex<HashMap<PlacedWeights, Arc<PackedTensor>>>,
    /// Addresses that graphs write.
    written: Mutex<RangeSet<usize>>,
    /// Parts of tensors that are not complete yet.
    pub(crate) pieces: Mutex<TensorPieces>,
}

impl WatchedBuffer {
    fn is(&self, buffer: *const Buffer) -> bool {
        ptr::eq(self.buffer.get(), buffer)
    }

    /// Whether a tensor waits for [`WatchedBuffers::settle`].
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Returns these weights; `None` without a decision.
    pub(crate) fn decided(&self, place: PlacedWeights) -> Option<Arc<PackedTensor>> {
        lock(&self.decided).get(&place).cloned()
    }

    /// Forgets the packed matrices of tensors with bytes in `range`.
    pub(crate) fn forget(&self, range: &Range<usize>) {
        for weights in lock(&self.decided).values() {
            if overlap(&weights.extent, range) {
                weights.forget();
            }
        }
    }

    /// Leaves the tensors in `range`, which a graph writes, to the CPU. The time of the write is
    /// unknown, so nothing packed from the range is used from now on. A range inside the known
    /// ranges is not reported again.
    fn leave_written(&self, range: &Range<usize>) -> WrittenRange {
        let mut written = lock(&self.written);
        if covers(&written, range) {
            return WrittenRange::Known;
        }
        written.insert(range.clone());
        // A thread that decides meanwhile either sees the range, or its decision is seen here.
        drop(written);
        let mut answer = WrittenRange::New;
        for weights in lock(&self.decided).values() {
            if overlap(&weights.extent, range) {
                if weights.decision.is_accepted() {
                    answer = WrittenRange::Withdrawn;
                }
                weights.decision.revoke(LeftOnCpu::Written);
                weights.forget();
            }
        }
        answer
    }

    /// Records a tensor that is placed in this buffer. Decides about it at once, if its turn has
    /// come.
    pub(crate) fn place(&self, context: &WeightContext<'_>, tensor: TensorRef<'_>) {
        let Some(usage) = tensor.buffer_usage() else {
            return;
        };
        let is_stored = tensor.op() == context.host.ops.none && tensor.viewed().is_none();
        let is_matrix = tensor.ne()[1] > 1 && tensor.address() != 0;
        if usage == usage::COMPUTE || !is_stored || !is_matrix {
            return;
        }
        let candidate = UndecidedTensor::new(tensor);
        // A mapped buffer is declared to hold weights before a tensor is placed in it.
        let is_due = usage == usage::WEIGHTS && self.order == WeightOrder::Plain;
        if is_due && WeightRole::of(&candidate.name) == WeightRole::Layer {
            // The reason why it stays on the CPU is requested when it is used.
            let _ = self.decide(context, &candidate);
        } else {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            lock(&self.candidates).push(candidate);
        }
    }

    /// Asks the budget about a tensor, unless it has a decision.
    fn decide(
        &self,
        context: &WeightContext<'_>,
        candidate: &UndecidedTensor,
    ) -> Result<Arc<PackedTensor>, DeclineReason> {
        let UndecidedTensor { name, place } = candidate;
        let PlacedWeights { address, weights } = *place;
        let (precision, [k, n, b2, b3]) = offload::storable(&weights, context.rules)?;
        let mut decided = lock(&self.decided);
        if let Some(known) = decided.get(place) {
            return Ok(Arc::clone(known));
        }
        let matrices = b2.checked_mul(b3).ok_or(DeclineReason::Dimensions)?;
        let extent = weights.extent(address).ok_or(DeclineReason::Dimensions)?;
        let plan = context.rules.target.weight_plan(precision, [n, k]);
        let plan = plan.ok_or(DeclineReason::NoPlan)?;
        let wanted = context.patterns.include(name);
        // A prompt needs the output for one row.
        let is_layer = WeightRole::of(name) == WeightRole::Layer;
        let call_ps = context.rules.decide(weights.format.number, [n, k]).call_ps;
        let prompt_ps = call_ps.filter(|_| is_layer).unwrap_or(0);
        let decision = (context.budget).decide(wanted, plan, matrices, prompt_ps);
        if lock(&self.written).overlaps(&extent) {
            decision.revoke(LeftOnCpu::Written);
        }
        let new = PackedTensor::new(extent, decision);
        decided.insert(*place, Arc::clone(&new));
        if self.is_output(name) {
            // A flag only: the table has its own lock.
            self.has_output.store(true, Ordering::Relaxed);
        }
        Ok(new)
    }

    /// Whether the tensor is only the output matrix: the CPU does not look up rows in tensors that
    /// it rearranges.
    fn is_output(&self, name: &str) -> bool {
        match WeightRole::of(name) {
            WeightRole::Layer => false,
            WeightRole::Output => true,
            WeightRole::Embedding => self.order == WeightOrder::Rearranged,
        }
    }
}

/// All of the CPU's buffers, in the order in which they were made.
#[derive(Debug, Default)]
pub(crate) struct WatchedBuffers {
    entries: Mutex<Vec<Arc<WatchedBuffer>>>,
    settling: Mutex<()>,
}

impl WatchedBuffers {
    /// Adds a buffer in which `candidates` lie.
    fn add(
        &self,
        buffer: GgmlPtr<Buffer>,
        order: WeightOrder,
        originals: BufferCallbacks,
        candidates: Vec<UndecidedTensor>,
    ) {
        let mut entries = lock(&self.entries);
        // A buffer that was at this address before is gone.
        entries.retain(|entry| !entry.is(buffer.get()));
        entries.push(Arc::new(WatchedBuffer {
            buffer,
            order,
            originals,
            waiting: AtomicUsize::new(candidates.len()),
            candidates: Mutex::new(candidates),
            has_output: AtomicBool::new(false),
            decided: Mutex::default(),
            written: Mutex::default(),
            pieces: Mutex::default(),
        }));
    }

    /// Returns the entry of `buffer`; `None` if it was not watched when it was made.
    pub(crate) fn get(&self, buffer: *const Buffer) -> Option<Arc<WatchedBuffer>> {
        let entries = lock(&self.entries);
        entries.iter().find(|entry| entry.is(buffer)).cloned()
    }

    /// Returns the weights of `tensor`, and decides about them if there is no decision. The tensor is used now, and `buffer` has its bytes like in the model file.
    pub(crate) fn decide_when_used(
        &self,
        context: &WeightContext<'_>,
        buffer: *const Buffer,
        tensor: TensorRef<'_>,
    ) -> Result<Arc<PackedTensor>, DeclineReason> {
        let entry = self.get(buffer).ok_or(DeclineReason::Unseen)?;
        let known = || entry.decided(PlacedWeights::of(tensor));
        if let Some(decided) = known() {
            return Ok(decided);
        }
        // Data was read straight into the buffer: the other weights of the model wait for their
        // turns too.
        if entry.is_waiting() {
            self.settle(context);
            context.report();
        }
        match known() {
            Some(decided) => Ok(decided),
            // Each part would be packed separately, and the number of parts is unknown.
            None if tensor.viewed().is_some() => Err(DeclineReason::Part),
            None => entry.decide(context, &UndecidedTensor::new(tensor)),
        }
    }

    /// Leaves the tensors in `range` of `buffer` to the CPU, see [`WatchedBuffer::leave_written`].
    pub(crate) fn leave_written(
        &self,
        buffer: *const Buffer,
        range: &Range<usize>,
    ) -> WrittenRange {
        let entry = self.get(buffer);
        entry.map_or(WrittenRange::Known, |entry| entry.leave_written(range))
    }

    /// Watches `buffer`, whose callbacks become `hooks`.
    ///
    /// # Safety
    /// `buffer` is a buffer of the host that was just made and that nobody else knows.
    pub(crate) unsafe fn adopt(
        &self,
        host: &Host,
        buffer: *mut Buffer,
        order: WeightOrder,
        hooks: BufferCallbacks,
    ) {
        let Some(address) = GgmlPtr::new(buffer) else {
            return;
        };
        // SAFETY: live, and nobody calls its callbacks, by the caller's promise.
        let originals = unsafe { host.layout.hook(buffer, hooks) };
        self.add(address, order, originals, Vec::new());
    }

    /// Forgets a buffer that is about to be freed.
    pub(crate) fn remove(&self, buffer: *const Buffer) -> Option<Arc<WatchedBuffer>> {
        let mut entries = lock(&self.entries);
        let index = entries.iter().position(|entry| entry.is(buffer))?;
        Some(entries.remove(index))
    }

    /// Decides about all waiting weights, in the order in which they were placed, but the output
    /// matrix last.
    pub(crate) fn settle(&self, context: &WeightContext<'_>) {
        let has_weights = |buffer| {
            // SAFETY: it is in the table, whose lock is held: whoever frees it waits.
            let usage = unsafe { (context.host.buffer_get_usage)(buffer) };
            usage == usage::WEIGHTS
        };
        // A thread that needs a decision which another thread is making waits for it.
        let _settling = self.settling.lock();
        for (entry, candidate) in self.due(has_weights) {
            // The reason why one stays on the CPU is requested when it is used.
            let _ = entry.decide(context, &candidate);
            entry.waiting.fetch_sub(1, Ordering::Release);
        }
    }

    /// Takes the candidates of buffers of weights, in the order of their turns.
    fn due(
        &self,
        has_weights: impl Fn(*mut Buffer) -> bool,
    ) -> Vec<(Arc<WatchedBuffer>, UndecidedTensor)> {
        let is_due = |entry: &&Arc<WatchedBuffer>| {
            entry.order == WeightOrder::Rearranged || has_weights(entry.buffer.get())
        };
        let entries = lock(&self.entries);
        let buffers: Vec<_> = entries.iter().filter(is_due).cloned().collect();
        drop(entries);
        let mut due: Vec<_> = buffers
            .iter()
            .flat_map(|entry| {
                let candidates = std::mem::take(&mut *lock(&entry.candidates));
                candidates.into_iter().map(|one| (Arc::clone(entry), one))
            })
            .collect();
        let is_output =
            |(entry, one): &(Arc<WatchedBuffer>, UndecidedTensor)| entry.is_output(&one.name);
        let has_output = |one: &(Arc<WatchedBuffer>, UndecidedTensor)| {
            is_output(one) || one.0.has_output.load(Ordering::Relaxed)
        };
        // Then embeddings are only looked up. The output of another model says nothing: its buffers
        // have no candidates any more.
        if due.iter().any(has_output) {
            due.retain(|one| {
                let is_wanted =
                    is_output(one) || WeightRole::of(&one.1.name) != WeightRole::Embedding;
                one.0
                    .waiting
                    .fetch_sub(usize::from(!is_wanted), Ordering::Release);
                is_wanted
            });
        }
        due.sort_by_key(|(_, one)| WeightRole::of(&one.name));
        due
    }
}

#[cfg(test)]
mod tests;
