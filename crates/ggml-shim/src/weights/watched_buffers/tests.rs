// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the order in which weights are decided about, and of what is known about them.

use proptest::prelude::*;
use test_support::assert_each_field_counts;

use super::*;
use crate::decide::offload::tests::{floats, halves, policy};
use crate::ggml::host::tests::FAKE_HOST;
use crate::weights::budget::tests::{accepted, budget};
use crate::weights::packed_tensor::tests::{key, packed};

/// Bytes of each tensor.
const BYTES: usize = 2 * 64 * 64;

impl WatchedBuffers {
    /// Adds a buffer with tensors of these names.
    fn add_named(&self, order: WeightOrder, names: &[&str]) -> *mut Buffer {
        // Not in the order of the addresses.
        let address = 0x100_0000 - 0x1_0000 * lock(&self.entries).len();
        let buffer: *mut Buffer = ptr::without_provenance_mut(address);
        let candidate = |(index, name): (usize, &&str)| UndecidedTensor {
            name: (*name).to_owned(),
            place: PlacedWeights {
                address: buffer.addr() + index * BYTES,
                weights: halves([64, 64, 1, 1]),
            },
        };
        let candidates = names.iter().enumerate().map(candidate).collect();
        let originals = BufferCallbacks::default();
        self.add(GgmlPtr::new(buffer).unwrap(), order, originals, candidates);
        buffer
    }

    /// Packs the tensor of `candidate`.
    fn take(&self, buffer: *mut Buffer, candidate: usize) -> Arc<PackedTensor> {
        let entry = self.get(buffer).unwrap();
        let place = lock(&entry.candidates)[candidate].place;
        let extent = place.weights.extent(place.address).unwrap();
        let weights = PackedTensor::new(extent, accepted(1));
        weights.insert(key([0, 0]), packed(1).unwrap());
        lock(&entry.decided).insert(place, Arc::clone(&weights));
        weights
    }

    /// Names of the due candidates.
    fn due_names(&self, has_weights: impl Fn(*mut Buffer) -> bool) -> Vec<String> {
        let due = self.due(has_weights);
        due.into_iter().map(|(_, one)| one.name).collect()
    }
}

#[test]
fn the_outputs_weights_come_last_and_tables_that_are_looked_up_never() {
    use WeightOrder::{Plain, Rearranged};
    let embeddings = "token_embd.weight";
    for (plain, rearranged, due) in [
        (
            &[embeddings, "b"][..],
            &["output.weight", "c"][..],
            &["b", "c", "output.weight"][..],
        ),
        // A table of embeddings that is the output's weight too.
        (&[embeddings, "b"], &["c"], &["b", "c", embeddings]),
        // The CPU has rearranged it for matmuls, and looks rows up elsewhere.
        (&[embeddings], &[embeddings, "c"], &["c", embeddings]),
    ] {
        let buffers = WatchedBuffers::default();
        buffers.add_named(Plain, plain);
        buffers.add_named(Rearranged, rearranged);
        assert_eq!(buffers.due_names(|_| true), due);
        assert!(buffers.due_names(|_| true).is_empty());
    }
}

#[test]
fn an_output_that_was_decided_about_is_remembered() {
    let buffers = WatchedBuffers::default();
    let buffer = buffers.add_named(WeightOrder::Plain, &["token_embd.weight", "b"]);
    let entry = buffers.get(buffer).unwrap();
    entry.has_output.store(true, Ordering::Relaxed);
    assert_eq!(buffers.due_names(|_| true), ["b"]);
}

#[test]
fn the_output_of_another_model_says_nothing() {
    let buffers = WatchedBuffers::default();
    let first = buffers.add_named(WeightOrder::Rearranged, &["output.weight"]);
    assert_eq!(buffers.due_names(|_| true), ["output.weight"]);
    let entry = buffers.get(first).unwrap();
    entry.has_output.store(true, Ordering::Relaxed);
    // A second model, whose output is its table of embeddings.
    buffers.add_named(WeightOrder::Plain, &["token_embd.weight", "b"]);
    assert_eq!(buffers.due_names(|_| true), ["b", "token_embd.weight"]);
}

#[test]
fn tensors_outside_of_weight_buffers_wait() {
    let buffers = WatchedBuffers::default();
    let cache = buffers.add_named(WeightOrder::Plain, &["cache_k_l0"]);
    buffers.add_named(WeightOrder::Plain, &["b"]);
    let has_weights = |buffer: *mut Buffer| !ptr::eq(buffer, cache);
    assert_eq!(buffers.due_names(has_weights), ["b"]);
    assert!(buffers.get(cache).unwrap().is_waiting());
    assert_eq!(buffers.due_names(|_| true), ["cache_k_l0"]);
}

#[test]
fn a_new_buffer_takes_the_place_of_one_at_its_address() {
    let buffers = WatchedBuffers::default();
    let buffer = buffers.add_named(WeightOrder::Plain, &["a"]);
    let address = GgmlPtr::new(buffer).unwrap();
    let originals = BufferCallbacks::default();
    buffers.add(address, WeightOrder::Rearranged, originals, Vec::new());
    let order = buffers.get(buffer).unwrap().order;
    assert_eq!(order, WeightOrder::Rearranged);
    assert!(buffers.due_names(|_| true).is_empty());
}

#[test]
fn only_written_tensors_are_left_to_the_cpu() {
    let buffers = WatchedBuffers::default();
    let buffer = buffers.add_named(WeightOrder::Plain, &["a", "b", "c"]);
    let [a, b, c] = [0, 1, 2].map(|index| buffers.take(buffer, index));
    let entry = buffers.get(buffer).unwrap();
    let extent = |index: usize| buffer.addr() + index * BYTES..buffer.addr() + (index + 1) * BYTES;
    let are_packed = || [&a, &b, &c].map(|weights| weights.are_packed());
    entry.forget(&(extent(0).start..extent(0).start + 1));
    assert_eq!(are_packed(), [false, true, true]);
    let second = extent(1);
    assert_eq!(entry.leave_written(&second), WrittenRange::Withdrawn);
    assert_eq!(entry.leave_written(&second), WrittenRange::Known);
    let tail = buffer.addr() + 3 * BYTES..buffer.addr() + 4 * BYTES;
    assert_eq!(entry.leave_written(&tail), WrittenRange::New);
    assert_eq!(b.decision.refusal(), Some(LeftOnCpu::Written));
    assert!(a.decision.is_accepted() && c.decision.is_accepted());
    assert_eq!(are_packed(), [false, false, true]);
    // That holds for later decisions too.
    let are_written = [0, 1, 2].map(|index| lock(&entry.written).overlaps(&extent(index)));
    assert_eq!(are_written, [false, true, false]);
}

#[test]
fn another_shape_at_the_same_address_is_another_tensor() {
    let buffers = WatchedBuffers::default();
    let buffer = buffers.add_named(WeightOrder::Plain, &[]);
    let entry = buffers.get(buffer).unwrap();
    let context = WeightContext {
        host: &FAKE_HOST,
        rules: &policy(1),
        budget: &budget(1),
        patterns: &Patterns::default(),
    };
    let are_packed = |address: usize, weights: TensorShape| {
        let candidate = UndecidedTensor {
            name: "a".to_owned(),
            place: PlacedWeights { address, weights },
        };
        entry.decide(&context, &candidate).unwrap().are_packed()
    };
    let (address, first) = (buffer.addr(), halves([64, 64, 1, 1]));
    assert!(!are_packed(address, first));
    let place = PlacedWeights {
        address,
        weights: first,
    };
    let weights = entry.decided(place).unwrap();
    weights.insert(key([0, 0]), packed(1).unwrap());
    assert!(are_packed(address, first) && !are_packed(address + BYTES, first));
    for ne in [[64, 32, 1, 1], [32, 64, 1, 1], [64, 64, 2, 1]] {
        assert!(!are_packed(address, halves(ne)), "{ne:?}");
    }
    assert!(!are_packed(address, floats(first.ne)));
    let mut strided = first;
    strided.nb[1..].iter_mut().for_each(|stride| *stride *= 2);
    assert!(!are_packed(address, strided));
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    #[test]
    fn places_differ_in_each_field(
        addresses in [0..2_usize, 0..2],
        sizes in [[1..3_i64, 1..3, 1..3, 1..3], [1..3, 1..3, 1..3, 1..3]],
        are_strided in [any::<bool>(), any::<bool>()],
        are_floats in [any::<bool>(), any::<bool>()],
    ) {
        let [one, other] = [0, 1].map(|at| {
            let mut weights = if are_floats[at] { floats(sizes[at]) } else { halves(sizes[at]) };
            weights.nb[3] += usize::from(are_strided[at]);
            PlacedWeights { address: addresses[at], weights }
        });
        assert_each_field_counts!(PlacedWeights { address, weights }, one, other);
        assert_each_field_counts!(TensorShape { format, ne, nb }, one.weights, other.weights);
    }
}
