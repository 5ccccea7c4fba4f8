// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the blocks of keys that each row sees.

use std::collections::TryReserveError;
use std::ops::Range;

use half::f16;
use rayon::prelude::*;

use super::call::AttentionCall;
use crate::numbers::scratch::Scratch;

/// Work on the scores of a block before the softmax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    Nothing,
    /// Some keys are removed; the mask is 0 or -inf everywhere.
    Cut,
    /// Scores are capped, or the mask is added.
    Bias,
}

/// A block of keys that some rows of a tile see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VisibleBlock {
    pub(crate) block: usize,
    pub(crate) treatment: Treatment,
}

/// Some mask element is not -inf.
const VISIBLE: u8 = 1;
/// Some mask element is not 0.
const NOT_ZERO: u8 = 2;
/// Some mask element is neither 0 nor -inf.
const OTHER: u8 = 4;

/// Properties of each mask row in each block of keys.
pub(crate) struct MaskBlocks {
    /// Flags by mask head, row and block.
    flags: Vec<u8>,
    heads: usize,
    rows: usize,
    /// Number of blocks.
    blocks: usize,
    /// Keys of a block.
    block: usize,
    keys: usize,
    has_cap: bool,
}

impl MaskBlocks {
    /// Reads the mask of a call once, if it has one.
    pub(crate) fn new(
        call: &AttentionCall<'_>,
        block: usize,
        scratch: &Scratch<u8>,
    ) -> Result<Self, TryReserveError> {
        let keys = call.k.rows();
        let blocks = keys.div_ceil(block);
        let (heads, rows) = call.mask.map_or((0, 0), |mask| (mask.heads(), mask.rows()));
        let mut flags = scratch.take(heads * rows * blocks)?;
        if let Some(mask) = call.mask {
            let row_flags = flags.par_chunks_mut(blocks.max(1)).enumerate();
            row_flags.for_each(|(at, flags)| {
                let row = mask.vector(at / rows, at % rows);
                for (flags, mask) in flags.iter_mut().zip(row.chunks(block)) {
                    *flags = flags_of(mask);
                }
            });
        }
        Ok(Self {
            flags,
            heads,
            rows,
            blocks,
            block,
            keys,
            has_cap: call.softcap != 0.0,
        })
    }

    /// The blocks that these heads and rows see, in order.
    pub(crate) fn visible(&self, heads: Range<usize>, rows: Range<usize>) -> Vec<VisibleBlock> {
        let visible = (0..self.blocks).filter_map(|block| {
            let treatment = self.treatment(block, heads.clone(), rows.clone())?;
            Some(VisibleBlock { block, treatment })
        });
        visible.collect()
    }

    fn treatment(
        &self,
        block: usize,
        heads: Range<usize>,
        rows: Range<usize>,
    ) -> Option<Treatment> {
        let mut flags = match self.heads {
            0 => VISIBLE,
            _ => 0,
        };
        // Further heads use the same mask heads again.
        for head in heads.take(self.heads) {
            let first = head % self.heads * self.rows;
            for row in rows.clone() {
                flags |= self.flags[(first + row) * self.blocks + block];
            }
        }
        let is_whole = (block + 1) * self.block <= self.keys;
        match flags {
            _ if flags & VISIBLE == 0 => None,
            _ if self.has_cap || flags & OTHER != 0 => Some(Treatment::Bias),
            VISIBLE if is_whole => Some(Treatment::Nothing),
            _ => Some(Treatment::Cut),
        }
    }

    /// Returns the memory to `scratch`.
    pub(crate) fn recycle(self, scratch: &Scratch<u8>) {
        scratch.put(self.flags);
    }
}

fn flags_of(mask: &[f16]) -> u8 {
    const CUT: u16 = f16::NEG_INFINITY.to_bits();
    let (mut visible, mut not_zero, mut other) = (false, false, false);
    for x in mask {
        let bits = x.to_bits();
        visible |= bits != CUT;
        not_zero |= bits != 0;
        other |= bits != 0 && bits != CUT;
    }
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    flag(visible, VISIBLE) | flag(not_zero, NOT_ZERO) | flag(other, OTHER)
}

#[cfg(test)]
mod tests {
    use super::super::HeadRows;
    use super::*;

    #[test]
    fn blocks_are_seen_cut_or_biased() {
        let (o, x) = (f16::ZERO, f16::NEG_INFINITY);
        #[rustfmt::skip]
        let masks = [
            [o, o,  x, x,  o, x,  o],
            [o, o,  x, x,  x, x,  o],
            [x, x,  x, x,  f16::ONE, x,  x],
            [x, x,  x, x,  o, o,  x],
        ];
        let kv = [f16::ZERO; 7];
        let mut call = AttentionCall {
            q: HeadRows::contiguous(&[0.0; 4], 2, 2, 1).unwrap(),
            k: HeadRows::contiguous(&kv, 1, 7, 1).unwrap(),
            v: HeadRows::contiguous(&kv, 1, 7, 1).unwrap(),
            mask: HeadRows::contiguous(masks.as_flattened(), 2, 2, 7),
            sinks: None,
            slopes: None,
            scale: 1.0,
            key_scales: None,
            softcap: 0.0,
            out: &mut [],
        };
        let scratch = Scratch::default();
        let seen = |call: &AttentionCall<'_>, heads, rows| -> Vec<_> {
            let blocks = MaskBlocks::new(call, 2, &scratch).unwrap();
            let visible = blocks.visible(heads, rows).into_iter();
            visible.map(|v| (v.block, v.treatment)).collect()
        };
        use Treatment::{Bias, Cut, Nothing};
        assert_eq!(seen(&call, 0..1, 0..2), [(0, Nothing), (2, Cut), (3, Cut)]);
        assert_eq!(seen(&call, 0..1, 1..2), [(0, Nothing), (3, Cut)]);
        assert_eq!(seen(&call, 1..2, 0..1), [(2, Bias)]);
        assert_eq!(seen(&call, 1..2, 1..2), [(2, Nothing)]);
        assert_eq!(seen(&call, 0..2, 0..1), [(0, Cut), (2, Bias), (3, Cut)]);
        call.mask = None;
        let open = [(0, Nothing), (1, Nothing), (2, Nothing), (3, Cut)];
        assert_eq!(seen(&call, 0..2, 0..2), open);
        call.softcap = 1.0;
        assert_eq!(
            seen(&call, 0..2, 0..2),
            open.map(|(block, _)| (block, Bias))
        );
    }
}
