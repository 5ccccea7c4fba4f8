# SPDX-License-Identifier: MIT OR Apache-2.0
"""Trains the demo's model on stories, and writes it in Q4_0: `python3 -m stories.train FILE`, in
tests/llama. The file in the repository was made so, in three and a half minutes of CPU time
(x86-64, two cores shared with other work).

Its tokens are words and parts of words. They are joined pair by pair, the most frequent pair
first (byte pair encoding). Scores in that order make llama.cpp join them in the same order.
"""

import re
import sys
from collections import Counter
from pathlib import Path

import gguf
import numpy as np

from gguf_llama import SPACE, finish, new_writer, pieces
from llama_training import Model, Shape, train
from stories.text import stories

STORIES, SEED = 20_000, 1
SHAPE = Shape(embedding=256, feed_forward=512, layers=3, kv_heads=2, length=160)
STEPS, SEQUENCES = 800, 8
BEGIN, END = 1, 2
# As many pairs are joined at most.
MERGES = 640
# Numbers of the stories that learn which pairs are frequent.
SAMPLE = 2000
NAME = "stories"
DESCRIPTION = "Writes stories for children in the words of some templates; a demonstration only."
LICENCE = "MIT OR Apache-2.0"


def words(text: str) -> list[str]:
    """A text's words, each with the space before it, and its punctuation marks."""
    return re.findall(f"{SPACE}?\\w+|{SPACE}?[^\\w{SPACE}]", SPACE + text.replace(" ", SPACE))


def joined(parts: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    """Joins the pair wherever it is, from the left."""
    out: list[str] = []
    for part in parts:
        if out and (out[-1], part) == pair:
            out[-1] += part
        else:
            out.append(part)
    return tuple(out)


def learn(counts: Counter) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """The texts of joined pairs, the most frequent first, and the parts of each word."""
    parts = {word: tuple(word) for word in counts}
    merges: list[str] = []
    while len(merges) < MERGES:
        pairs: Counter = Counter()
        for word, count in counts.items():
            for pair in zip(parts[word], parts[word][1:]):
                pairs[pair] += count
        if not pairs:
            break
        # The order of equals is fixed.
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        if "".join(best) not in merges:
            merges.append("".join(best))
        parts = {word: joined(one, best) for word, one in parts.items()}
    return merges, parts


def vocabulary(merges: list[str]) -> list[tuple[str, float, int]]:
    """The table of tokens: bytes and characters of every text, and the joined pairs."""
    table = [row for row in pieces()[0] if len(row[0]) == 1 or row[2] != gguf.TokenType.NORMAL]
    return table + [
        (text, -float(rank), gguf.TokenType.NORMAL) for rank, text in enumerate(merges)
    ]


def write(path: Path) -> None:
    random = np.random.default_rng(SEED)
    texts = stories(SEED, STORIES)
    counts = Counter(word for text in texts for word in words(text))
    merges, parts = learn(counts)
    table = vocabulary(merges)
    number = {text: index for index, (text, _, _) in enumerate(table)}
    ids = {word: [number[part] for part in one] for word, one in parts.items()}
    starts, stream = [], []
    for text in texts:
        starts.append(len(stream))
        stream.append(BEGIN)
        stream += [index for word in words(text) for index in ids[word]]
        stream.append(END)
    given = np.array(stream)
    places = np.array([start for start in starts if start + SHAPE.length < len(given)])
    print(f"{len(table)} tokens, {len(given) / STORIES:.0f} of them a story", flush=True)

    def batch() -> np.ndarray:
        chosen = random.choice(places, SEQUENCES)
        return np.stack([given[start : start + SHAPE.length + 1] for start in chosen])

    model = Model(random, len(table), SHAPE)
    train(model, STEPS, batch)
    save(path, table, model)


def save(path: Path, table: list, model: Model) -> None:
    """Writes the matrices in Q4_0, and vectors as they are."""
    sizes = dict(embedding=SHAPE.embedding, feed_forward=SHAPE.feed_forward, layers=SHAPE.layers)
    sizes |= dict(kv_heads=SHAPE.kv_heads, file_type=gguf.LlamaFileType.MOSTLY_Q4_0)
    writer = new_writer(path, NAME, table, **sizes)
    writer.add_description(DESCRIPTION)
    writer.add_license(LICENCE)
    kind = gguf.GGMLQuantizationType.Q4_0
    for name, values in model.weights.items():
        if values.ndim == 1:
            writer.add_tensor(f"{name}.weight", values.astype(np.float32))
        else:
            writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
    finish(writer)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
