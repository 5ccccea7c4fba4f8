# SPDX-License-Identifier: MIT OR Apache-2.0
"""llama.cpp's own test of random models, one of each architecture: logits with our device against
the CPU's."""

import re
from collections.abc import Callable, Mapping

from process import Output
from stock import Stock

COLOUR = re.compile("\x1b\\[[0-9;]*m")
# Name, verdict and normalised mean square error; what is not compared has no error.
ROW = re.compile(r"^\|\s*(\S+)\|.*?\|\s*(\w+) \(([0-9.e+-]+)\)\s*\|", re.M)
# The largest error that logits and attention may have.
NMSE = 1e-5


def rows(output: Output) -> list[tuple[str, str, float]]:
    """What was compared: name, verdict and error."""
    found = ROW.findall(COLOUR.sub("", output.text))
    return [(name, verdict, float(error)) for name, verdict, error in found]


def run(
    stock: Stock,
    *words: str,
    env: Mapping[str, str] = {},
    whole: Callable[[Output], object] = lambda _: True,
    limit: float = 120,
) -> Output:
    words = ("-b", stock.device_name, "-s", "1", *words)
    return stock.run("test-llama-archs", *words, env=env, whole=whole, limit=limit)
