// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the order in which weights are decided about.

use std::ptr;

use npu_matmul::Dtype;
use npu_matmul::memory::MemoryPlan;
use npu_matmul::plan::{PlanOptions, WeightPlan};

use super::*;
use crate::abi::type_id;
use crate::budget::Budget;
use crate::supports::tests::packed;

/// Bytes of each tensor.
const BYTES: usize = 2 * 64 * 64;

/// Buffers whose usage the test sets.
struct Buffers(WeightBuffers);

impl Buffers {
    fn new() -> Self {
        Self(WeightBuffers::default())
    }

    /// Adds a buffer with tensors of these names.
    fn add(&self, order: WeightOrder, names: &[&str]) -> *mut Buffer {
        let mut entries = self.0.entries.write().unwrap();
        entries.made += 1;
        // Not in the order of the addresses.
        let buffer: *mut Buffer = ptr::without_provenance_mut(0x100_0000 - 0x1_0000 * entries.made);
        let candidate = |(index, name): (usize, &&str)| Candidate {
            name: (*name).to_owned(),
            address: buffer.addr() + index * BYTES,
            weights: packed(type_id::F16, [64, 64, 1, 1]),
        };
        let entry = WeightBuffer {
            buffer: GgmlPtr::new(buffer).unwrap(),
            order,
            number: entries.made,
            originals: BufferCallbacks::default(),
            residents: Arc::default(),
            candidates: Mutex::new(names.iter().enumerate().map(candidate).collect()),
            waiting: AtomicUsize::new(names.len()),
            has_output: AtomicBool::new(false),
            decisions: RwLock::default(),
            written: RwLock::default(),
            pieces: Mutex::default(),
        };
        entries.by_address.insert(buffer.addr(), Arc::new(entry));
        buffer
    }

    /// Decides that the tensor of `candidate` may be on the NPU.
    fn take(&self, buffer: *mut Buffer, candidate: usize) -> Arc<WeightDecision> {
        let entry = self.0.get(buffer).unwrap();
        let one = &entry.candidates()[candidate];
        let options = PlanOptions::default();
        let memory = MemoryPlan::for_weights(3, u64::MAX, &options);
        let plan = WeightPlan::new(Dtype::Fp16, 64, 64, 3, &options).unwrap();
        let decision = Budget::new(memory, u64::MAX).decide(true, vec![plan], 0);
        let key = decision_key(&one.weights, one.address).unwrap();
        let extent = one.weights.extent(one.address).unwrap();
        let mut decisions = entry.decisions.write().unwrap();
        let tensor = DecidedTensor {
            extent,
            decision: Arc::clone(&decision),
        };
        decisions.insert(key, tensor);
        decision
    }

    fn due(&self, has_weights: impl Fn(*mut Buffer) -> bool) -> Vec<String> {
        let due = self.0.due(has_weights);
        due.into_iter().map(|(_, one)| one.name).collect()
    }
}

#[test]
fn the_outputs_weights_come_last_and_tables_that_are_looked_up_never() {
    let buffers = Buffers::new();
    buffers.add(WeightOrder::Plain, &["token_embd.weight", "b"]);
    buffers.add(WeightOrder::Rearranged, &["output.weight", "c", "d"]);
    assert_eq!(buffers.due(|_| true), ["b", "c", "d", "output.weight"]);
    assert!(buffers.due(|_| true).is_empty());
}

#[test]
fn a_table_of_embeddings_that_is_the_outputs_weight_too_comes_last() {
    let buffers = Buffers::new();
    buffers.add(WeightOrder::Plain, &["token_embd.weight", "b"]);
    assert_eq!(buffers.due(|_| true), ["b", "token_embd.weight"]);
    // The CPU has rearranged it for matmuls, and looks rows up elsewhere.
    let buffers = Buffers::new();
    buffers.add(WeightOrder::Plain, &["token_embd.weight"]);
    buffers.add(WeightOrder::Rearranged, &["token_embd.weight", "c"]);
    assert_eq!(buffers.due(|_| true), ["c", "token_embd.weight"]);
}

#[test]
fn an_output_that_was_decided_about_is_remembered() {
    let buffers = Buffers::new();
    let rearranged = buffers.add(WeightOrder::Rearranged, &[]);
    let entry = buffers.0.get(rearranged).unwrap();
    entry.has_output.store(true, Ordering::Relaxed);
    buffers.add(WeightOrder::Plain, &["token_embd.weight", "b"]);
    assert_eq!(buffers.due(|_| true), ["b"]);
}

#[test]
fn what_is_in_no_buffer_of_weights_waits() {
    let buffers = Buffers::new();
    let cache = buffers.add(WeightOrder::Plain, &["cache_k_l0"]);
    buffers.add(WeightOrder::Plain, &["b"]);
    let has_weights = |buffer: *mut Buffer| !ptr::eq(buffer, cache);
    assert_eq!(buffers.due(has_weights), ["b"]);
    assert!(buffers.0.get(cache).unwrap().is_waiting());
    assert_eq!(buffers.due(|_| true), ["cache_k_l0"]);
}

#[test]
fn what_a_graph_writes_is_left_to_the_cpu_and_its_neighbours_are_not() {
    let buffers = Buffers::new();
    let buffer = buffers.add(WeightOrder::Plain, &["a", "b", "c"]);
    let [a, b, c] = [0, 1, 2].map(|index| buffers.take(buffer, index));
    let entry = buffers.0.get(buffer).unwrap();
    let second = buffer.addr() + BYTES..buffer.addr() + 2 * BYTES;
    assert!(entry.leave_written(&second));
    assert!(!entry.leave_written(&second));
    assert_eq!(b.refusal(), Some(LeftOnCpu::Written));
    assert!(a.is_accepted() && c.is_accepted());
    // That holds for later decisions too.
    let extent = |index: usize| buffer.addr() + index * BYTES..buffer.addr() + (index + 1) * BYTES;
    assert_eq!(
        [0, 1, 2].map(|index| entry.is_written(&extent(index))),
        [false, true, false]
    );
}
