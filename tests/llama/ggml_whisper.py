# SPDX-License-Identifier: MIT OR Apache-2.0
"""A whisper model with random weights, of tiny.en's widths and two layers, as whisper.cpp reads it.

What it hears means nothing, but its logits depend on every weight.
"""

import struct
import sys
from pathlib import Path

import numpy as np

MAGIC = 0x67676D6C  # "ggml"
F32, F16 = 0, 1
# The number of tokens tells whisper.cpp that the model is English only; those in the file are the
# pieces of text, and the others are its own.
TOKENS, PIECES = 51864, 50257
STATE, HEADS, LAYERS = 384, 6, 2
AUDIO_CONTEXT, TEXT_CONTEXT = 1500, 448
MELS, BINS = 80, 201


def write(path: Path) -> None:
    """Writes one, the same each time."""
    random = np.random.default_rng(1)
    with path.open("wb") as file:

        def numbers(*values: int) -> None:
            file.write(struct.pack(f"<{len(values)}i", *values))

        def tensor(name: str, values: np.ndarray, kind: int) -> None:
            encoded = name.encode()
            numbers(values.ndim, len(encoded), kind, *values.shape[::-1])
            file.write(encoded)
            file.write(values.astype(np.float16 if kind == F16 else np.float32).tobytes())

        def matrix(name: str, *shape: int) -> None:
            # Keeps the size of what it multiplies.
            size = np.sqrt(np.prod(shape[1:]))
            tensor(f"{name}.weight", random.standard_normal(shape) / size, F16)

        def small(name: str, *shape: int) -> None:
            tensor(name, 0.1 * random.standard_normal(shape), F32)

        def linear(name: str, rows: int, columns: int) -> None:
            matrix(name, rows, columns)
            small(f"{name}.bias", rows)

        def norm(name: str) -> None:
            tensor(f"{name}.weight", np.ones(STATE), F32)
            small(f"{name}.bias", STATE)

        def attention(name: str) -> None:
            norm(f"{name}_ln")
            for part in ("query", "value", "out"):
                linear(f"{name}.{part}", STATE, STATE)
            matrix(f"{name}.key", STATE, STATE)

        def blocks(name: str, attentions: list[str]) -> None:
            for block in (f"{name}.blocks.{layer}" for layer in range(LAYERS)):
                for each in attentions:
                    attention(f"{block}.{each}")
                norm(f"{block}.mlp_ln")
                linear(f"{block}.mlp.0", 4 * STATE, STATE)
                linear(f"{block}.mlp.2", STATE, 4 * STATE)

        audio = (AUDIO_CONTEXT, STATE, HEADS, LAYERS)
        text = (TEXT_CONTEXT, STATE, HEADS, LAYERS)
        numbers(MAGIC, TOKENS, *audio, *text, MELS, F16)
        # Triangles side by side, instead of those of the mel scale.
        numbers(MELS, BINS)
        centres = np.linspace(0, BINS, MELS + 2)[1:-1, None]
        filters = np.maximum(0, 1 - abs(np.arange(BINS) - centres) / 3) / 30
        file.write(filters.astype(np.float32).tobytes())
        numbers(PIECES)
        for piece in (f" {number}".encode() for number in range(PIECES)):
            numbers(len(piece))
            file.write(piece)

        small("encoder.positional_embedding", AUDIO_CONTEXT, STATE)
        for name, inputs in [("encoder.conv1", MELS), ("encoder.conv2", STATE)]:
            matrix(name, STATE, inputs, 3)
            small(f"{name}.bias", STATE, 1)
        blocks("encoder", ["attn"])
        norm("encoder.ln_post")
        small("decoder.positional_embedding", TEXT_CONTEXT, STATE)
        matrix("decoder.token_embedding", TOKENS, STATE)
        blocks("decoder", ["attn", "cross_attn"])
        norm("decoder.ln")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
