// SPDX-License-Identifier: MIT OR Apache-2.0
//! The products that the tables of plans are about.

/// File descriptors: one for each core.
pub(crate) const FDS: usize = 3;

/// A product of a layer.
pub(super) struct LayerProduct {
    pub(super) model: &'static str,
    pub(super) what: &'static str,
    pub(super) k: usize,
    pub(super) n: usize,
}

/// The different products of a layer of each model, by the models' published
/// configurations.
pub(super) const PRODUCTS: [LayerProduct; 12] = [
    product("Gemma-3-1B", "query", 1152, 1024),
    product("Gemma-3-1B", "key, value", 1152, 256),
    product("Gemma-3-1B", "gate, up", 1152, 6912),
    product("Gemma-3-1B", "down", 6912, 1152),
    product("Llama-3.2-3B", "query, output", 3072, 3072),
    product("Llama-3.2-3B", "key, value", 3072, 1024),
    product("Llama-3.2-3B", "gate, up", 3072, 8192),
    product("Llama-3.2-3B", "down", 8192, 3072),
    product("Llama-3.1-8B", "query, output", 4096, 4096),
    product("Llama-3.1-8B", "key, value", 4096, 1024),
    product("Llama-3.1-8B", "gate, up", 4096, 14336),
    product("Llama-3.1-8B", "down", 14336, 4096),
];

/// Products of which others published the time with resident weights (E-time-resident):
/// their INT8 was slower than their FP16.
pub(super) const RESIDENT: [LayerProduct; 2] = [
    product("Gemma-4-12B", "query", 3840, 4096),
    product("Gemma-4-12B", "down", 15360, 3840),
];

const fn product(model: &'static str, what: &'static str, k: usize, n: usize) -> LayerProduct {
    LayerProduct { model, what, k, n }
}

/// The products of a layer, in the order in which they are computed: those of one list
/// are given the same activations, as K and N.
pub(super) struct Layer {
    pub(super) model: &'static str,
    pub(super) batches: [&'static [(usize, usize)]; 4],
}

/// The layers of the same models: query, key and value; output; gate and up; down.
pub(super) const LAYERS: [Layer; 3] = [
    Layer {
        model: "Gemma-3-1B",
        batches: [
            &[(1152, 1024), (1152, 256), (1152, 256)],
            &[(1024, 1152)],
            &[(1152, 6912), (1152, 6912)],
            &[(6912, 1152)],
        ],
    },
    Layer {
        model: "Llama-3.2-3B",
        batches: [
            &[(3072, 3072), (3072, 1024), (3072, 1024)],
            &[(3072, 3072)],
            &[(3072, 8192), (3072, 8192)],
            &[(8192, 3072)],
        ],
    },
    Layer {
        model: "Llama-3.1-8B",
        batches: [
            &[(4096, 4096), (4096, 1024), (4096, 1024)],
            &[(4096, 4096)],
            &[(4096, 14336), (4096, 14336)],
            &[(14336, 4096)],
        ],
    },
];
