// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shapes of language models.

use npu_matmul::attention::AttentionShape;

use crate::decide::format::NumberFormat;

/// The shape of a llama-like model: attention, and a gated feed-forward network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelShape {
    /// Name of the model, as tables print it.
    pub name: &'static str,
    /// Number of layers.
    pub layers: usize,
    /// Channels between layers.
    pub hidden: usize,
    /// Channels within a feed-forward network.
    pub feed_forward: usize,
    /// Query heads of attention.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Number of tokens in the vocabulary.
    pub vocabulary: usize,
    /// `[n, window]` of a model in which only every `n`-th layer sees all earlier tokens, and each
    /// other layer the last `window`.
    pub window: Option<[usize; 2]>,
}

/// Architectures of GGUF files (`general.architecture`) that a [`ModelShape`] describes. With
/// `Some(n)` only every `n`-th layer sees all earlier tokens, the others a window. `n` is from the
/// models' published `config.json`, since the files lack it.
pub const ARCHITECTURES: [(&str, Option<usize>); 5] = [
    ("gemma3", Some(6)),
    ("llama", None),
    ("mistral3", None),
    ("qwen2", None),
    ("qwen3", None),
];

/// The part of a layer that a matrix belongs to. Matrices of the same part read the same
/// activations and are computed together, except [`LayerPart::Other`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerPart {
    /// Query, key and value.
    AttentionInput,
    /// Gate and up of the feed-forward network.
    FeedForwardInput,
    /// A matrix that is computed alone.
    Other,
}

impl LayerPart {
    /// The part of the tensor with this name in a GGUF file.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        if has(&["attn_q.", "attn_k.", "attn_v."]) {
            Self::AttentionInput
        } else if has(&["ffn_gate.", "ffn_up."]) {
            Self::FeedForwardInput
        } else {
            Self::Other
        }
    }
}

/// Weight matrices of one size, by which each token of a prompt is multiplied, or only the last
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightMatrix {
    /// Number format in the file.
    pub format: NumberFormat,
    /// Output channels and input channels.
    pub size: [usize; 2],
    /// Number of such matrices.
    pub count: usize,
    /// The part of a layer that they belong to.
    pub part: LayerPart,
    /// Whether it is the output matrix, which a prompt needs only for its last token.
    pub is_output: bool,
    /// Whether it may run on the NPU, because its packed weights have memory.
    pub is_placed: bool,
}

impl ModelShape {
    /// Gemma 3, 1B, by its published `config.json`.
    pub const GEMMA3_1B: Self = Self {
        name: "Gemma3-1B",
        layers: 26,
        hidden: 1152,
        feed_forward: 6912,
        heads: 4,
        kv_heads: 1,
        head_dim: 256,
        vocabulary: 262_144,
        window: Some([6, 512]),
    };
    /// Llama 3.2, 1B, likewise.
    pub const LLAMA32_1B: Self = Self {
        name: "Llama-3.2-1B",
        layers: 16,
        hidden: 2048,
        feed_forward: 8192,
        heads: 32,
        kv_heads: 8,
        head_dim: 64,
        vocabulary: 128_256,
        window: None,
    };
    /// Llama 3.2, 3B.
    pub const LLAMA32_3B: Self = Self {
        name: "Llama-3.2-3B",
        layers: 28,
        hidden: 3072,
        feed_forward: 8192,
        heads: 24,
        kv_heads: 8,
        head_dim: 128,
        vocabulary: 128_256,
        window: None,
    };
    /// Qwen 3, 0.6B.
    pub const QWEN3_0_6B: Self = Self {
        name: "Qwen3-0.6B",
        layers: 28,
        hidden: 1024,
        feed_forward: 3072,
        heads: 16,
        kv_heads: 8,
        head_dim: 128,
        vocabulary: 151_936,
        window: None,
    };
    /// All of these shapes.
    pub const ALL: [Self; 4] = [
        Self::QWEN3_0_6B,
        Self::GEMMA3_1B,
        Self::LLAMA32_1B,
        Self::LLAMA32_3B,
    ];

    /// Returns its weight matrices, all in one format. The output matrix is the table of embeddings
    /// or has the same size.
    #[must_use]
    pub fn weights(&self, format: NumberFormat) -> Vec<WeightMatrix> {
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let layer = |part, [n, k]: [usize; 2], each| WeightMatrix {
            format,
            size: [n, k],
            count: each * self.layers,
            part,
            is_output: false,
            is_placed: true,
        };
        vec![
            layer(LayerPart::AttentionInput, [queries, self.hidden], 1),
            layer(LayerPart::AttentionInput, [keys, self.hidden], 2),
            layer(LayerPart::Other, [self.hidden, queries], 1),
            layer(
                LayerPart::FeedForwardInput,
                [self.feed_forward, self.hidden],
                2,
            ),
            layer(LayerPart::Other, [self.hidden, self.feed_forward], 1),
            WeightMatrix {
                count: 1,
                is_output: true,
                ..layer(LayerPart::Other, [self.vocabulary, self.hidden], 1)
            },
        ]
    }

    /// Returns the number of layers in each group, and how many tokens the group sees: `usize::MAX`
    /// if it sees all.
    pub(crate) fn layers_by_window(&self) -> Vec<(usize, usize)> {
        match self.window {
            None => vec![(self.layers, usize::MAX)],
            Some([every, window]) => {
                let global = self.layers / every;
                vec![(global, usize::MAX), (self.layers - global, window)]
            }
        }
    }

    /// Its attention of the last `rows` of `keys` tokens. Each sees itself and those before it.
    #[must_use]
    pub const fn attention(&self, rows: usize, keys: usize) -> AttentionShape {
        AttentionShape {
            heads: self.heads,
            kv_heads: self.kv_heads,
            rows,
            keys,
            head_dim: self.head_dim,
            value_dim: self.head_dim,
            window: Some(usize::MAX),
        }
    }

    /// Multiply-adds of attention for the tokens `from..to` of a prompt, each of which sees itself
    /// and those before it: scores, and the weighted sum of values.
    #[must_use]
    pub fn attention_macs(&self, from: usize, to: usize) -> u64 {
        let group_pairs = |(layers, window): (usize, usize)| {
            let seen: u64 = (from..to).map(|token| (token + 1).min(window) as u64).sum();
            layers as u64 * seen
        };
        let groups = self.layers_by_window().into_iter();
        let pairs: u64 = groups.map(group_pairs).sum();
        pairs * 2 * (self.heads * self.head_dim) as u64
    }

    /// Bytes that all other operations read and write for a token, in F32: norms, rotations of
    /// positions, activations and sums.
    #[must_use]
    pub fn other_bytes(&self) -> u64 {
        let float = size_of::<f32>();
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        // Two norms, each of which reads twice and writes.
        let norms = 2 * 3 * self.hidden;
        // Two sums, each of which reads twice and writes.
        let sums = 2 * 3 * self.hidden;
        let rotations = 2 * (queries + keys);
        // Keys and values into the cache.
        let cache = 2 * 2 * keys;
        let activations = 3 * self.feed_forward;
        (self.layers * float * (norms + sums + rotations + cache + activations)) as u64
    }
}
