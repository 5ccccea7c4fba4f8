# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes whisper models as whisper.cpp reads them; by itself one with random weights, of tiny.en's
widths and two layers.

What the random one hears means nothing, but its logits depend on every weight.
"""

import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

MAGIC = 0x67676D6C  # "ggml"
F32, F16 = 0, 1
# The number of tokens tells whisper.cpp that the model is English only; those in the file are the
# pieces of text, and the others are its own.
TOKENS, PIECES = 51864, 50257
STATE, HEADS, LAYERS = 384, 6, 2
AUDIO_CONTEXT, TEXT_CONTEXT = 1500, 448
MELS, BINS = 80, 201

# The values of a tensor, by its name and dimensions.
Weights = Callable[[str, tuple[int, ...]], np.ndarray]


def write(path: Path) -> None:
    """Writes one with random weights, the same each time."""
    random = np.random.default_rng(1)

    def weights(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name.endswith(".weight") and len(shape) == 1:
            return np.ones(shape)  # of a norm
        values = random.standard_normal(shape)
        # A matrix keeps the size of what it multiplies.
        return values / np.sqrt(np.prod(shape[1:])) if name.endswith(".weight") else 0.1 * values

    # Triangles side by side, instead of those of the mel scale.
    centres = np.linspace(0, BINS, MELS + 2)[1:-1, None]
    filters = np.maximum(0, 1 - abs(np.arange(BINS) - centres) / 3) / 30
    pieces = [f" {number}".encode() for number in range(PIECES)]
    write_model(path, LAYERS, filters, pieces, weights)


def write_model(
    path: Path, layers: int, filters: np.ndarray, pieces: list[bytes], weights: Weights
) -> None:
    """Writes one of tiny.en's widths. Matrices become F16."""
    with path.open("wb") as file:
        audio = (AUDIO_CONTEXT, STATE, HEADS, layers)
        text = (TEXT_CONTEXT, STATE, HEADS, layers)
        numbers(file, MAGIC, TOKENS, *audio, *text, MELS, F16)
        numbers(file, MELS, BINS)
        file.write(filters.astype(np.float32).tobytes())
        numbers(file, len(pieces))
        for piece in pieces:
            numbers(file, len(piece))
            file.write(piece)
        for name, shape in tensors(layers):
            is_matrix = name.endswith(".weight") and len(shape) > 1
            values = np.reshape(weights(name, shape), shape)
            numbers(file, len(shape), len(name), F16 if is_matrix else F32, *shape[::-1])
            file.write(name.encode())
            file.write(values.astype(np.float16 if is_matrix else np.float32).tobytes())


def numbers(file: BinaryIO, *values: int) -> None:
    file.write(struct.pack(f"<{len(values)}i", *values))


def tensors(layers: int) -> list[tuple[str, tuple[int, ...]]]:
    """Names and dimensions of all tensors."""
    found: list[tuple[str, tuple[int, ...]]] = []

    def linear(name: str, rows: int, columns: int) -> None:
        found.extend([(f"{name}.weight", (rows, columns)), (f"{name}.bias", (rows,))])

    def norm(name: str) -> None:
        found.extend([(f"{name}.weight", (STATE,)), (f"{name}.bias", (STATE,))])

    def blocks(name: str, attentions: list[str]) -> None:
        for block in (f"{name}.blocks.{layer}" for layer in range(layers)):
            for each in (f"{block}.{attention}" for attention in attentions):
                norm(f"{each}_ln")
                for part in ("query", "value", "out"):
                    linear(f"{each}.{part}", STATE, STATE)
                found.append((f"{each}.key.weight", (STATE, STATE)))
            norm(f"{block}.mlp_ln")
            linear(f"{block}.mlp.0", 4 * STATE, STATE)
            linear(f"{block}.mlp.2", STATE, 4 * STATE)

    found.append(("encoder.positional_embedding", (AUDIO_CONTEXT, STATE)))
    for name, inputs in [("encoder.conv1", MELS), ("encoder.conv2", STATE)]:
        found.append((f"{name}.weight", (STATE, inputs, 3)))
        found.append((f"{name}.bias", (STATE, 1)))
    blocks("encoder", ["attn"])
    norm("encoder.ln_post")
    found.append(("decoder.positional_embedding", (TEXT_CONTEXT, STATE)))
    found.append(("decoder.token_embedding.weight", (TOKENS, STATE)))
    blocks("decoder", ["attn", "cross_attn"])
    norm("decoder.ln")
    return found


if __name__ == "__main__":
    write(Path(sys.argv[1]))
