# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes a LoRA adapter with random weights for a llama model.

For each matrix W of a layer it has two thin ones, A of `RANK` rows and B of `RANK` columns, and
llama.cpp computes W x + scale * B (A x) with scale = alpha / rank.
"""

from pathlib import Path

import gguf
import numpy as np

import gguf_llama

RANK = 8
ALPHA = 16.0
SEED = 5
# What the adapter adds to a result, as a part of the matrix's own.
SHARE = 0.2
MATRICES = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]


def write(path: Path, model: Path) -> None:
    """Writes an adapter for `model`, whose weights are F16."""
    random = np.random.default_rng(SEED)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, ALPHA)
    names = {f"{name}.weight" for name in MATRICES}
    for tensor in gguf.GGUFReader(model).tensors:
        if tensor.name.split(".", 2)[-1] not in names:
            continue
        rows, depth = tensor.data.shape
        a, b = (random.standard_normal(size) for size in ((RANK, depth), (rows, RANK)))
        # B A has entries of the variance of W times SHARE squared.
        spread = SHARE * tensor.data.astype(np.float32).std() * RANK / ALPHA / RANK**0.5
        for suffix, part in (("lora_a", a), ("lora_b", b * spread)):
            writer.add_tensor(f"{tensor.name}.{suffix}", part.astype(np.float16))
    gguf_llama.finish(writer)
