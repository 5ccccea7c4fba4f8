// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operands of attention, in the caller's layout.

use half::f16;

use crate::matrix::MatrixView;
use crate::plan::error::Error;

/// A strided view: one vector for each head and row. It holds queries, keys, values, or the rows of
/// a mask. The elements of one vector are contiguous.
#[derive(Clone, Copy, Debug)]
pub struct HeadRows<'a, T> {
    data: &'a [T],
    heads: usize,
    rows: usize,
    len: usize,
    head_stride: usize,
    row_stride: usize,
}

impl<'a, T> HeadRows<'a, T> {
    /// Creates a view of `heads` x `rows` vectors of `len` elements. Strides count elements:
    /// `head_stride` from a vector to that of the next head, `row_stride` to that of the next row.
    /// Vectors may overlap: a stride may be 0.
    ///
    /// Returns `None` if the last vector ends behind `data`.
    #[must_use]
    pub fn new(
        data: &'a [T],
        [heads, rows, len]: [usize; 3],
        [head_stride, row_stride]: [usize; 2],
    ) -> Option<Self> {
        let extent = Self::extent([heads, rows, len], [head_stride, row_stride])?;
        (extent <= data.len()).then_some(Self {
            data,
            heads,
            rows,
            len,
            head_stride,
            row_stride,
        })
    }

    /// Number of elements that [`HeadRows::new`] needs: from the first vector's start to the last
    /// one's end. `None` if the number overflows.
    #[must_use]
    pub fn extent(
        [heads, rows, len]: [usize; 3],
        [head_stride, row_stride]: [usize; 2],
    ) -> Option<usize> {
        let (Some(last_head), Some(last_row)) = (heads.checked_sub(1), rows.checked_sub(1)) else {
            return Some(0);
        };
        let head = last_head.checked_mul(head_stride)?;
        let row = last_row.checked_mul(row_stride)?;
        head.checked_add(row)?.checked_add(len)
    }

    /// Creates a view without gaps: all rows of the first head, then those of the next.
    ///
    /// Returns `None` if `data` has too few elements.
    #[must_use]
    pub fn contiguous(data: &'a [T], heads: usize, rows: usize, len: usize) -> Option<Self> {
        let head_stride = rows.checked_mul(len)?;
        Self::new(data, [heads, rows, len], [head_stride, len])
    }

    /// Number of heads.
    #[must_use]
    pub const fn heads(&self) -> usize {
        self.heads
    }

    /// Number of rows of each head.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Number of elements of each vector.
    #[must_use]
    pub const fn vector_len(&self) -> usize {
        self.len
    }

    /// The vector of `row` of `head`; empty if out of range.
    #[must_use]
    pub fn vector(&self, head: usize, row: usize) -> &'a [T] {
        if head >= self.heads || row >= self.rows {
            return &[];
        }
        // In range: `new` checked that the last vector ends within the data.
        let at = head * self.head_stride + row * self.row_stride;
        &self.data[at..at + self.len]
    }
}

/// Attention of a batch of rows, which are the last ones of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    /// Number of query heads.
    pub heads: usize,
    /// Number of KV heads.
    pub kv_heads: usize,
    /// Rows of each head.
    pub rows: usize,
    /// Keys of each head, including those of the rows themselves.
    pub keys: usize,
    /// Elements of each query and key.
    pub head_dim: usize,
    /// Elements of each value.
    pub value_dim: usize,
    /// Number of keys that a row sees at most, its own and earlier ones. `None` if each row sees
    /// all keys, later ones too.
    pub window: Option<usize>,
}

impl AttentionShape {
    /// A prompt's last batch in Llama-3.2-1B.
    #[cfg(test)]
    pub(crate) const LLAMA: Self = Self {
        heads: 32,
        kv_heads: 8,
        rows: 512,
        keys: 2048,
        head_dim: 64,
        value_dim: 64,
        window: None,
    };

    /// Query heads of each KV head.
    pub(crate) const fn group(&self) -> usize {
        match self.kv_heads {
            0 => 0,
            kv_heads => self.heads / kv_heads,
        }
    }
}

/// Operands of attention for one sequence of a batch: all heads of a layer.
///
/// The operands determine the sizes: `q` has the heads and rows, `k` the KV heads and keys. The
/// vectors of `q` and `k` have the head size; those of `v` may have another length.
#[derive(Debug)]
#[must_use = "attention is computed by `Engine::attend`"]
pub struct AttentionCall<'a> {
    /// Queries.
    pub q: HeadRows<'a, f32>,
    /// Keys, one row for each key. The number of KV heads divides the heads of `q`.
    pub k: HeadRows<'a, f16>,
    /// Values, one for each key, of any length.
    pub v: HeadRows<'a, f16>,
    /// Added to the scores: one row for each row of `q`, one element for each key. Head `h` uses
    /// mask `h % mask.heads()`; the mask has at most as many heads as `q`. -inf removes the key for
    /// that row.
    pub mask: Option<HeadRows<'a, f16>>,
    /// One logit for each head. It takes part in the softmax and has no value.
    pub sinks: Option<&'a [f32]>,
    /// Factor of the mask for each head (ALiBi); 1 if `None`.
    pub slopes: Option<&'a [f32]>,
    /// Factor of the dot products.
    pub scale: f32,
    /// Another factor of the dot products for each KV head; 1 if `None`.
    pub key_scales: Option<&'a [f32]>,
    /// The bound `c` of `c * tanh(s / c)`; 0 disables it.
    pub softcap: f32,
    /// The result: `[rows][heads][value length]`.
    pub out: &'a mut [f32],
}

impl AttentionCall<'_> {
    /// The sizes, as if no mask hid any key.
    #[must_use]
    pub const fn batch(&self) -> AttentionShape {
        AttentionShape {
            heads: self.q.heads(),
            kv_heads: self.k.heads(),
            rows: self.q.rows(),
            keys: self.k.rows(),
            head_dim: self.q.vector_len(),
            value_dim: self.v.vector_len(),
            window: None,
        }
    }

    /// Factor of the dot products of this query head.
    pub(crate) fn scale_of(&self, head: usize) -> f32 {
        let kv_head = || head / self.batch().group().max(1);
        self.scale * self.key_scales.map_or(1.0, |scales| scales[kv_head()])
    }

    /// Checks that the operands fit each other.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let expect = |what, actual, expected| {
            if actual == expected {
                Ok(())
            } else {
                Err(Error::AttentionShape {
                    what,
                    actual,
                    expected,
                })
            }
        };
        let (heads, kv_heads, keys) = (self.q.heads(), self.k.heads(), self.k.rows());
        let (k_len, q_len) = (self.k.vector_len(), self.q.vector_len());
        expect("the length of K's vectors", k_len, q_len)?;
        expect("V's number of heads", self.v.heads(), kv_heads)?;
        expect("V's number of keys", self.v.rows(), keys)?;
        let whole_groups = heads.checked_next_multiple_of(kv_heads);
        expect("Q's number of heads", heads, whole_groups.unwrap_or(0))?;
        if let Some(mask) = &self.mask {
            expect("the mask's number of rows", mask.rows(), self.q.rows())?;
            expect("the length of the mask's rows", mask.vector_len(), keys)?;
            let mask_heads = mask.heads().clamp(1, heads.max(1));
            expect("the mask's number of heads", mask.heads(), mask_heads)?;
        }
        if let Some(sinks) = self.sinks {
            expect("the number of sinks", sinks.len(), heads)?;
        }
        if let Some(slopes) = self.slopes {
            expect("the number of slopes", slopes.len(), heads)?;
        }
        if let Some(scales) = self.key_scales {
            expect("the number of factors of K", scales.len(), kv_heads)?;
        }
        let vectors = self.q.rows().checked_mul(heads);
        let out = vectors.and_then(|vectors| vectors.checked_mul(self.v.vector_len()));
        let out = out.unwrap_or(usize::MAX);
        expect("the length of the result", self.out.len(), out)
    }
}

impl<'a, T: Default> HeadRows<'a, T> {
    /// The rows of one head.
    pub(crate) fn matrix(&self, head: usize) -> MatrixView<'a, T> {
        let data = self.data.get(head * self.head_stride..).unwrap_or_default();
        // Never `None`: the last vector ends within the data.
        MatrixView::strided(data, self.rows, self.len, self.row_stride).unwrap_or_default()
    }
}
