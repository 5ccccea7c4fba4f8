# SPDX-License-Identifier: MIT OR Apache-2.0
"""Small llama models with random weights.

The same options give the same file. The text that such a model writes means
nothing, but it depends on every weight; and because all that it can write is
visible (see `gguf_llama.pieces`), two texts are equal only if each token is.
"""

import sys
from pathlib import Path

import numpy as np

from gguf_llama import HEAD_DIM, finish, new_writer, pieces

# Of a model with outliers: how many times as large these channels are in each
# activation behind a norm, and how many times as small the weights that they
# meet. Language models have a few such channels, the same ones for each token,
# with weights that are not large (LLM.int8(), arXiv:2208.07339); by these
# factors three of 256 channels are a quarter of a sum's variance.
OUTLIER_ACTIVATION = 20.0
OUTLIER_WEIGHT = 0.25

LAYERS = 4
# Matmuls of a step: four of attention and three behind it in each layer, and the output; and those
# that see all rows of a prompt: the last layer's three and the output only see its last token.
OF_A_STEP = 7 * LAYERS + 1
OF_PROMPT = OF_A_STEP - 4


def write(
    path: Path,
    *,
    seed: int = 1,
    embedding: int = 256,
    feed_forward: int = 768,
    layers: int = LAYERS,
    kv_heads: int = 2,
    experts: int = 0,
    outliers: int = 0,
    tied: bool = False,
    logits: float = 1.0,
) -> None:
    """Writes one: of so many `experts` each token chooses two, `outliers` channels have large
    activations, `tied` makes the token embedding the output's weight too, and `logits` is their
    standard deviation."""
    random = np.random.default_rng(seed)
    # Apart, so that all other weights are those of a model without outliers.
    large = np.random.default_rng([seed, 1]).permutation(embedding)[:outliers]
    table, first_visible = pieces()
    name = f"tiny random llama, seed {seed}"
    shape = dict(embedding=embedding, feed_forward=feed_forward, layers=layers, kv_heads=kv_heads)
    writer = new_writer(path, name, table, **shape, experts=experts)

    def matrix(name: str, rows: int, columns: int, behind_norm: bool = False) -> None:
        # Keeps the size of what it multiplies.
        shape = (experts, rows, columns) if "_exps" in name else (rows, columns)
        values = random.standard_normal(shape, dtype=np.float32) / np.sqrt(columns)
        if behind_norm:
            values[..., large] *= OUTLIER_WEIGHT
        if name == "output":
            values *= logits
            # Greedy text then never picks a token that prints as nothing.
            values[:first_visible] = 0.0
        writer.add_tensor(f"{name}.weight", values.astype(np.float16))

    def norm(name: str, large: np.ndarray = large) -> None:
        values = 1.0 + 0.1 * random.standard_normal(embedding, dtype=np.float32)
        values[large] *= OUTLIER_ACTIVATION
        writer.add_tensor(f"{name}.weight", values.astype(np.float32))

    tokens = random.standard_normal((len(table), embedding), dtype=np.float32)
    if tied:
        # It multiplies what the last norm leaves, and has to be as large as
        # the output's weight for logits of the same size.
        tokens *= logits / np.sqrt(embedding)
        tokens[:first_visible] = 0.0
    writer.add_tensor("token_embd.weight", tokens.astype(np.float16))
    keys = kv_heads * HEAD_DIM
    kind = "_exps" if experts else ""
    for block in (f"blk.{layer}." for layer in range(layers)):
        norm(block + "attn_norm")
        matrix(block + "attn_q", embedding, embedding, behind_norm=True)
        matrix(block + "attn_k", keys, embedding, behind_norm=True)
        matrix(block + "attn_v", keys, embedding, behind_norm=True)
        matrix(block + "attn_output", embedding, embedding)
        norm(block + "ffn_norm")
        if experts:
            router = random.standard_normal((experts, embedding), dtype=np.float32)
            router /= np.sqrt(embedding)
            router[:, large] *= OUTLIER_WEIGHT
            writer.add_tensor(block + "ffn_gate_inp.weight", router)
        matrix(block + "ffn_gate" + kind, feed_forward, embedding, behind_norm=True)
        matrix(block + "ffn_up" + kind, feed_forward, embedding, behind_norm=True)
        matrix(block + "ffn_down" + kind, embedding, feed_forward)
    norm("output_norm", large[:0] if tied else large)
    if not tied:
        matrix("output", len(table), embedding, behind_norm=True)
    finish(writer)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
