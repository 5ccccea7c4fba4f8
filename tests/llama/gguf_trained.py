# SPDX-License-Identifier: MIT OR Apache-2.0
"""Train a small llama model in some minutes, on the licences that each Debian has (but for
Apache's, with which the checks read models). What random weights cannot show is how much a model
with learnt ones loses by rounding."""

from pathlib import Path

import numpy as np

from gguf_llama import SPACE, pieces
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


def write(plain: Path, with_outliers: Path) -> None:
    """Writes the model, and the same with outliers in its activations."""
    random = np.random.default_rng(1)
    table, _ = pieces()
    texts = [LICENCES / name for name in TEXTS if (LICENCES / name).exists()]
    text = "\n".join(path.read_text(errors="replace") for path in texts)
    given = tokens(text, table)

    def batch() -> np.ndarray:
        starts = random.integers(0, len(given) - SHAPE.length - 1, SEQUENCES)
        return np.stack([given[start : start + SHAPE.length + 1] for start in starts])

    model = Model(random, len(table), SHAPE)
    train(model, STEPS, batch)
    save(plain, NAME, table, model)
    add_outliers(model.weights, random)
    save(with_outliers, NAME, table, model)
