# SPDX-License-Identifier: MIT OR Apache-2.0
"""Accuracy against the number of answers, as an SVG."""

from math import log2
from pathlib import Path

from options import OPTIONS

# The field within the axes: left, top, width, height.
LEFT, TOP, WIDTH, HEIGHT = 60, 20, 460, 240
# The name of a method, and its colour.
METHODS = {
    "steps": ("beam search, checker of steps", "#1b7837"),
    "checker": ("best of N, checker of results", "#2166ac"),
    "vote": ("majority vote", "#b35806"),
    "probability": ("most probable of N", "#762a83"),
}
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 320" width="760" height="320" '
    'font-family="sans-serif" font-size="12">\n'
    "<!-- SPDX-License-Identifier: MIT OR Apache-2.0. "
    "Written by `cargo xtask llama answers`, told to record. -->\n"
    '<rect width="760" height="320" fill="white"/>\n'
)


def draw(counts: list[int], percent: dict[str, list[float]]) -> str:
    """Lines over a logarithmic axis of `counts`."""
    x = lambda n: LEFT + WIDTH * log2(n) / log2(counts[-1])
    y = lambda value: TOP + HEIGHT * (1 - value / 100)
    parts = []
    for value in range(0, 101, 20):
        parts.append(f'<path d="M{LEFT},{y(value):.1f} h{WIDTH}" stroke="#cccccc"/>')
        parts.append(
            f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value} %</text>'
        )
    for n in counts:
        place = f'x="{x(n):.1f}" y="{TOP + HEIGHT + 18}"'
        parts.append(f'<text {place} text-anchor="middle">{n}</text>')
    middle = LEFT + WIDTH / 2
    parts.append(
        f'<text x="{middle}" y="{TOP + HEIGHT + 40}" text-anchor="middle">N, answers sampled '
        "together</text>"
    )
    for row, (name, (title, colour)) in enumerate(METHODS.items()):
        points = " ".join(f"{x(n):.1f},{y(v):.1f}" for n, v in zip(counts, percent[name]))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        for n, value in zip(counts, percent[name]):
            parts.append(f'<circle cx="{x(n):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>')
        place = f'x="{LEFT + WIDTH + 20}" y="{TOP + 20 + 20 * row}"'
        parts.append(f'<text {place} fill="{colour}">{title}</text>')
    return HEAD + "\n".join(parts) + "\n</svg>\n"


def write(path: Path, counts: list[int], percent: dict[str, list[float]]) -> None:
    """Writes it with --record."""
    if OPTIONS.record:
        path.write_text(draw(counts, percent))
