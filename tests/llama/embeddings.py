# SPDX-License-Identifier: MIT OR Apache-2.0
"""A real model, all-MiniLM-L6-v2, with our backend. The stock llama-embedding turns sentences into
vectors, on the CPU and with us, from the same file. What MiniLM is used for is cosines between
sentences, so the cosine of the two vectors of a sentence says how far we are off."""

import json
from functools import cache

import numpy as np

from process import Output
from stats import Stats
from stock import Stock

# What is embedded, all in one batch: pairs that mean alike, some that mean nothing to each other,
# and some that are hardly sentences.
SENTENCES = [
    "The cat sleeps on the warm stones beside the kitchen stove.",
    "A kitten is dozing near the oven.",
    "Parliament passed the budget after a debate that lasted all night.",
    "Lawmakers approved next year's spending early in the morning.",
    "The driver submits register programs to the neural processing unit.",
    "Water boils at a lower temperature in the mountains.",
    "At high altitude it takes longer to cook potatoes.",
    "She tuned her violin, waited for the conductor's nod, and began to play.",
    "0x7fff3a91 0x00000000 -1 4294967295 3.14159 1e-308",
    "if (ptr != NULL && len > 0) { memcpy(dst, src, len); } // !!! ???",
    "Donaudampfschifffahrtsgesellschaft zmrzlina \u4f60\u597d \u03b1\u03b2\u03b3 qwxz zzzz",
    "no no no no no no no no no no no no no no no no no no no no no no no no no no",
]


def parse(output: Output) -> np.ndarray:
    """A row for each sentence; none if the end of the JSON was lost."""
    try:
        return np.array([each["embedding"] for each in json.loads(output.text)["data"]])
    except json.JSONDecodeError:
        return np.array([])


@cache
def embed(stock: Stock, kind: str, precision: str = "") -> tuple[np.ndarray, Stats | None]:
    """The vectors of all sentences by a file; on the CPU if there is no precision."""
    words = ["-p", "\n".join(SENTENCES), "--pooling", "mean", "--embd-normalize", 2]
    words += ["--embd-output-format", "json"]
    model = stock.quantised("minilm", kind)
    env = {"GGML_ROCKET_PRECISION": precision}
    whole = lambda output: len(parse(output)) == len(SENTENCES)
    how = dict(model=model, ours=bool(precision), env=env, whole=whole, limit=300)
    output = stock.run("llama-embedding", *words, **how)
    vectors = parse(output)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors, output.stats if precision else None


def nearest(vectors: np.ndarray) -> list[int]:
    """For each sentence the one that is nearest to it."""
    return (vectors @ vectors.T - 2 * np.eye(len(vectors))).argmax(1).tolist()


def compare(stock: Stock, kind: str, precision: str) -> tuple[float, bool, float | None, Stats]:
    """How near the vectors with a precision come to those of the CPU: the least cosine, whether
    each sentence kept its nearest neighbour; and how far off the vectors of the F16 file on the CPU,
    as a multiple of how far the CPU is off with this file (none for F16)."""
    exact, cpu = (embed(stock, of)[0] for of in ("F16", kind))
    ours, stats = embed(stock, kind, precision)
    loss = lambda vectors: (1 - (exact * vectors).sum(1)).sum()
    times = None if kind == "F16" else float(loss(ours) / loss(cpu))
    return float((cpu * ours).sum(1).min()), nearest(cpu) == nearest(ours), times, stats
