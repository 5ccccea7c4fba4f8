// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies into and out of memory that others may change at the same time.
//!
//! A `&[u8]` of such memory would be undefined behaviour, so these functions take atomic
//! words. Every access uses whole aligned words (edges by compare-and-swap), so accesses of
//! different sizes never overlap. The value of a read during a write is unspecified, with
//! no other effect.

use std::sync::atomic::{AtomicU64, Ordering};

const WORD_BYTES: usize = size_of::<u64>();

/// Copies bytes from `offset` on into `out`. Bytes of `out` beyond the end of `words` stay
/// unchanged.
#[inline]
pub fn load(words: &[AtomicU64], offset: usize, out: &mut [u8]) {
    let Some(words) = words.get(offset / WORD_BYTES..) else {
        return;
    };
    let skip = offset % WORD_BYTES;
    let head = out.len().min((WORD_BYTES - skip) % WORD_BYTES);
    let (head_out, body) = out.split_at_mut(head);
    let mut words = words.iter();
    if !head_out.is_empty()
        && let Some(word) = words.next()
    {
        let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        head_out.copy_from_slice(&bytes[skip..skip + head]);
    }
    let mut chunks = body.chunks_exact_mut(WORD_BYTES);
    for (chunk, word) in chunks.by_ref().zip(words.by_ref()) {
        chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    let tail = chunks.into_remainder();
    if !tail.is_empty()
        && let Some(word) = words.next()
    {
        let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        tail.copy_from_slice(&bytes[..tail.len()]);
    }
}

/// Copies `data` into `words` from byte `offset` on. Bytes beyond the end are dropped.
#[inline]
pub fn store(words: &[AtomicU64], offset: usize, data: &[u8]) {
    let Some(words) = words.get(offset / WORD_BYTES..) else {
        return;
    };
    let skip = offset % WORD_BYTES;
    let head = data.len().min((WORD_BYTES - skip) % WORD_BYTES);
    let (head_data, body) = data.split_at(head);
    let mut words = words.iter();
    if !head_data.is_empty()
        && let Some(word) = words.next()
    {
        merge(word, skip, head_data);
    }
    let mut chunks = body.chunks_exact(WORD_BYTES);
    for (chunk, word) in chunks.by_ref().zip(words.by_ref()) {
        let mut bytes = [0; WORD_BYTES];
        bytes.copy_from_slice(chunk);
        word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
    let tail = chunks.remainder();
    if !tail.is_empty()
        && let Some(word) = words.next()
    {
        merge(word, 0, tail);
    }
}

/// Replaces the bytes `skip..skip + data.len()` of one word, and keeps concurrent stores of
/// other threads to its other bytes.
#[inline]
fn merge(word: &AtomicU64, skip: usize, data: &[u8]) {
    let mut current = word.load(Ordering::Relaxed);
    loop {
        let mut bytes = current.to_ne_bytes();
        bytes[skip..skip + data.len()].copy_from_slice(data);
        let new = u64::from_ne_bytes(bytes);
        match word.compare_exchange_weak(current, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(seen) => current = seen,
        }
    }
}
