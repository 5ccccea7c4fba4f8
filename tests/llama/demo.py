# SPDX-License-Identifier: MIT OR Apache-2.0
"""`cargo xtask demo`: a small model goes on with a story, with the NPU and without."""

import textwrap
from itertools import zip_longest

from options import HERE, OPTIONS
from reference import completion
from stock import Stock

# Trained by stories/train.py.
MODEL = HERE / "stories/stories-q4_0.gguf"
PROMPT = (
    "Once upon a time there was a little fox named Mia. Every day Mia played with her red ball. "
    "She lived in a den near the forest. Her best friend was a bear named Tom. One sunny day"
)
# The story ends before that. llama-completion says where, unless it lost the end of its output.
TOKENS, END = 160, "[end of text]"


def goes_on(stock: Stock, ours: bool) -> tuple[str, str]:
    """What the model writes after the prompt, and the lines of statistics that tell of the NPU."""
    words = [word for word in completion(PROMPT, TOKENS) if word != "--ignore-eos"]
    whole = lambda output: END in output.text
    output = stock.run("llama-completion", *words, model=MODEL, ours=ours, whole=whole)
    if not ours:
        return shown(output.text), ""
    stats = output.stats
    assert stats.matmuls > 0, f"the NPU computed nothing: {stats.text}"
    name = "software model of the NPU" if stats.is_model else "NPU"
    work = f"{stats.matmuls} matrix multiplications and {stats.attention} attention steps"
    return shown(output.text), f"The {name} computed {work} of the prompt."


def shown(text: str) -> str:
    """The text without what llama-completion adds at its end."""
    return text.partition(END)[0].strip()


def difference(one: str, other: str) -> str:
    """How two texts differ, in a sentence."""
    pairs = [*zip_longest(one.split(), other.split(), fillvalue="(end)")]
    for index, (word, instead) in enumerate(pairs):
        if word != instead:
            return (
                f"The first {index} words are the same; then `{instead}` came instead of `{word}`."
            )
    return f"All {len(pairs)} words are the same."


def paragraph(text: str) -> str:
    return textwrap.fill(text, 90, initial_indent="  ", subsequent_indent="  ")


stock = Stock()
print(f"""
llama.cpp of Debian {OPTIONS.suite}, unchanged. A model of {MODEL.stat().st_size >> 10} KiB that was trained on
stories of this project continues one:

{paragraph(PROMPT)}

on the CPU alone:
""")
alone, _ = goes_on(stock, False)
print(f"{paragraph(alone)}\n\nwith the NPU:\n", flush=True)
together, work = goes_on(stock, True)
print(f"{paragraph(together)}\n\n{difference(alone, together)}\n{work}")
