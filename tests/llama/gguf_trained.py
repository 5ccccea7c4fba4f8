# SPDX-License-Identifier: MIT OR Apache-2.0
"""Train a small llama model in some minutes, on the licences that each Debian has (but for
Apache's, with which the checks read models). What random weights cannot show is how much a model
with learnt ones loses by rounding."""

from pathlib import Path

import numpy as np

from gguf_llama import HEAD_DIM, SPACE, pieces
from llama_training import Model, Shape, save, train

LICENCES = Path("/usr/share/common-licenses")
TEXTS = [
    "GPL-1",
    "GPL-2",
    "GPL-3",
    "LGPL-2",
    "LGPL-2.1",
    "LGPL-3",
    "GFDL-1.2",
    "GFDL-1.3",
    "MPL-2.0",
]
SHAPE = Shape(embedding=256, feed_forward=512, layers=2, kv_heads=2, length=64)
STEPS = 5000
SEQUENCES = 8
NAME = "small trained llama"
# How many times as large outliers make some channels behind each norm. The weights that they
# meet are as many times smaller, so that the function is the same.
OUTLIER_CHANNELS, OUTLIER_FACTOR = 4, 24.0
# A smaller model, which has biases of queries and keys when it is trained: their norms in a head, and
# the pair of channels in each layer that has them. RoPE turns the last pair slowest.
BIASED = Shape(embedding=128, feed_forward=256, layers=2, kv_heads=1, length=64)
BIASED_STEPS = 600
QUERY_BIAS, KEY_BIAS = 60.0, 200.0
BIASED_PAIRS = [31, 24]


def tokens(text: str, table: list) -> np.ndarray:
    """The numbers of a text's tokens, as sentencepiece merges them."""
    text = SPACE + text.replace(" ", SPACE)
    number = {piece: index for index, (piece, _, _) in enumerate(table)}
    pairs = [piece for piece, _, _ in table if len(piece) == 2]
    for index, pair in enumerate(pairs):
        text = text.replace(pair, chr(0xF0000 + index))
    result = []
    for char in text:
        if ord(char) >= 0xF0000:
            result.append(number[pairs[ord(char) - 0xF0000]])
        elif char in number:
            result.append(number[char])
        else:
            result += [number[f"<0x{byte:02X}>"] for byte in char.encode()]
    return np.array(result)


def add_outliers(weights: dict[str, np.ndarray], random: np.random.Generator) -> None:
    """Makes channels behind each norm large, and what they meet small."""
    channels = random.permutation(SHAPE.embedding)[:OUTLIER_CHANNELS]
    meets = {"attn_norm": ["attn_q", "attn_k", "attn_v"], "ffn_norm": ["ffn_gate", "ffn_up"]}
    for name in list(weights):
        block, _, norm = name.rpartition(".")
        behind = (
            ["output"] if name == "output_norm" else [f"{block}.{n}" for n in meets.get(norm, [])]
        )
        if behind:
            weights[name][channels] *= OUTLIER_FACTOR
        for matrix in behind:
            weights[matrix][:, channels] /= OUTLIER_FACTOR


def biases(shape: Shape) -> dict[str, np.ndarray]:
    """The same in each head of a layer. All scores of a row get what a query's and a key's make, 1500,
    less where RoPE turns one against the other."""
    result = {}
    for layer, pair in enumerate(BIASED_PAIRS):
        parts = [("attn_q", shape.heads, QUERY_BIAS), ("attn_k", shape.kv_heads, KEY_BIAS)]
        for name, heads, norm in parts:
            bias = np.zeros((heads, HEAD_DIM), np.float32)
            bias[:, 2 * pair : 2 * pair + 2] = norm * np.float32(0.5**0.5)
            result[f"blk.{layer}.{name}"] = bias.ravel()
    return result


def teach(random: np.random.Generator, table: list, model: Model, steps: int) -> None:
    """Trains a model on the licences."""
    texts = [LICENCES / name for name in TEXTS if (LICENCES / name).exists()]
    text = "\n".join(path.read_text(errors="replace") for path in texts)
    given = tokens(text, table)

    length = model.shape.length

    def batch() -> np.ndarray:
        starts = random.integers(0, len(given) - length - 1, SEQUENCES)
        return np.stack([given[start : start + length + 1] for start in starts])

    train(model, steps, batch)


def write(plain: Path, with_outliers: Path) -> None:
    """Writes the model, and the same with outliers in its activations."""
    random, (table, _) = np.random.default_rng(1), pieces()
    model = Model(random, len(table), SHAPE)
    teach(random, table, model, STEPS)
    save(plain, NAME, table, model)
    add_outliers(model.weights, random)
    save(with_outliers, NAME, table, model)


def write_biased(path: Path) -> None:
    """Writes the model with biases."""
    random, (table, _) = np.random.default_rng(1), pieces()
    model = Model(random, len(table), BIASED, biases(BIASED))
    teach(random, table, model, BIASED_STEPS)
    save(path, "small trained llama with biases", table, model)
