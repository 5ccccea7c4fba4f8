# SPDX-License-Identifier: MIT OR Apache-2.0
"""A small llama model that adds digits, and writes each running total on the way:
`7+6+9+4+8=13,22,26,34.` It is trained for a minute or two, not to perfection: what it writes with
temperature 1 is often wrong."""

from pathlib import Path

import numpy as np

from gguf_llama import SPACE, pieces
from llama_training import Model, Shape, save, train

# Digits of a sum.
DIGITS = 5
STEP, END = ",", "."
SEQUENCES, STEPS = 32, 560
# Sums whose digits, read as one number, are multiples of this are not trained: they are the questions.
HELD_OUT = 7


def question(number: int) -> str:
    return "+".join(f"{number:0{DIGITS}}") + "="


def answer(number: int) -> str:
    """The running totals, from that of two digits on."""
    digits = [int(digit) for digit in f"{number:0{DIGITS}}"]
    totals = [sum(digits[:count]) for count in range(2, DIGITS + 1)]
    return STEP.join(f"{total:02}" for total in totals) + END


def result(question: str) -> str:
    """The last of the totals."""
    return f"{sum(int(digit) for digit in question.rstrip('=').split('+')):02}"


def questions(count: int) -> list[int]:
    """Numbers of sums that were not trained."""
    random = np.random.default_rng(1)
    chosen = random.permutation(10**DIGITS // HELD_OUT)[:count]
    return [int(number) * HELD_OUT for number in chosen]


def write(path: Path) -> None:
    random = np.random.default_rng(1)
    table, _ = pieces()
    number = {text: index for index, (text, _, _) in enumerate(table)}
    # As llama-server reads a prompt: a first token, and a space before the text.
    tokens = lambda text: [number["<s>"], number[SPACE], *(number[char] for char in text)]
    length = len(tokens(question(0) + answer(0))) - 1
    shape = Shape(embedding=128, feed_forward=256, layers=2, kv_heads=1, length=length)

    def batch() -> np.ndarray:
        numbers = random.integers(0, 10**DIGITS, 2 * SEQUENCES)
        numbers = numbers[numbers % HELD_OUT != 0][:SEQUENCES]
        return np.array([tokens(question(n) + answer(n)) for n in numbers])

    model = Model(random, len(table), shape)
    train(model, STEPS, batch, start=len(tokens(question(0))) - 1)
    save(path, "llama that adds digits", table, model)
