# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a model thinks of each next token of a text, and how far two runs of it are apart.

`llama-perplexity --save-all-logits` writes the logits of all tokens into a file, and
`--kl-divergence` compares such a file with a second run. The comparison here is the same sum over
two files. It takes one run for each side instead of one for each pair, and loses no output.

The file: `_logits_`; the numbers of tokens in a chunk, of the vocabulary and of chunks, 32 bits
each; all tokens, 32 bits each; then for each token in the second half of each chunk but the last
one the logarithms of all probabilities, as a scale and a smallest one (f32) with 16 bits for each.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from options import ROOT, WORK
from stats import Stats
from stock import Stock

# Logarithms of the probabilities: a row for each place of the text.
Logits = np.ndarray
# Runs that are kept: of a real model's vocabulary each takes 200 MB.
KEPT = 4


def parse(data: bytes) -> Logits:
    assert data.startswith(b"_logits_"), "this is no file of logits"
    context, vocabulary, chunks = (int(n) for n in np.frombuffer(data, "<u4", 3, offset=8))
    # 16 bits in whole pairs.
    steps = ("steps", "<u2", vocabulary + vocabulary % 2)
    place = np.dtype([("scale", "<f4"), ("least", "<f4"), steps])
    rows = np.frombuffer(data, place, offset=20 + 4 * context * chunks)
    expected = chunks * (context - 1 - context // 2)
    assert len(rows) == expected > 0, f"{len(rows)} places, not {expected}"
    scale, least = (rows[name][:, None] for name in ("scale", "least"))
    return scale * rows["steps"][:, :vocabulary].astype(np.float32) + least


def divergences(ours: Logits, theirs: Logits) -> np.ndarray:
    """The Kullback-Leibler divergence of `theirs` from `ours` at each token, nats."""
    assert ours.shape == theirs.shape, "these are logits of different texts or vocabularies"
    return (np.exp(ours) * (ours - theirs)).sum(1, dtype=float)


def divergence(ours: Logits, theirs: Logits) -> float:
    """Their mean, nats a token."""
    return float(divergences(ours, theirs).mean())


def same_top(ours: Logits, theirs: Logits) -> float:
    """The part of the places where both take the same token for the likeliest."""
    return float((ours.argmax(1) == theirs.argmax(1)).mean())


class Run(NamedTuple):
    logits: Logits
    stats: Stats | None  # with our backend


def measure(
    stock: Stock,
    model: Path,
    ours: bool,
    env: Mapping[str, str] = {},
    *,
    adapter: Path | None = None,
    context: int = 128,
    chunks: int = 16,
    options: Sequence[object] = (),
) -> Run:
    """The logits of `model` on the beginning of a text of the repository: so many chunks of so
    many tokens, each in one batch unless `options` say otherwise. With a LoRA adapter, if one is
    given."""
    file = WORK / "logits.unread"
    words = ["-f", ROOT / "LICENSE-APACHE", "--chunks", chunks, "--save-all-logits", file]
    words += ["-c", context, "-b", context, "-ub", context]
    words += ["--lora", adapter] if adapter else []
    words += options
    output = stock.run("llama-perplexity", *words, model=model, ours=ours, env=env, limit=600)
    logits = parse(file.read_bytes())
    file.unlink()
    return Run(logits, output.stats if ours else None)


@lru_cache(KEPT)
def on_cpu(stock: Stock, model: Path, adapter: Path | None = None) -> Logits:
    return measure(stock, model, ours=False, adapter=adapter).logits


@lru_cache(KEPT)
def with_backend(
    stock: Stock, model: Path, precision: str = "auto", adapter: Path | None = None
) -> Run:
    return measure(stock, model, True, {"GGML_ROCKET_PRECISION": precision}, adapter=adapter)
