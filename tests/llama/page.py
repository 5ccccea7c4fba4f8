# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measured tables, and under which conditions a figure was measured."""

import os
import re
from pathlib import Path

from options import OPTIONS, ROOT
from stock import Stock

QUALITY = ROOT / "docs/quality.md"


def show(*contents: str) -> None:
    """Prints what was measured."""
    for content in contents:
        print(f"\n{content}")


def write(page: Path, sections: dict[str, str]) -> None:
    """Prints what was measured, and with --record puts it between the marks of the page."""
    for name, content in sections.items():
        show(content)
        if OPTIONS.record:
            # Not before all is measured: the page may have changed meanwhile. A blank line, without
            # which Markdown takes a table for text.
            begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
            between = re.compile(f"(?<={re.escape(begin)}\n).*?(?={re.escape(end)})", re.S)
            text, count = between.subn(lambda _: f"\n{content}\n", page.read_text())
            assert count == 1, f"{page.name} has no section {name}"
            page.write_text(text)


def table(head: str, rows: list[list[object]]) -> str:
    columns = head.count("|") + 1
    lines = [f"| {head} |", "|" + "---|" * columns]
    return "\n".join(lines + [f"| {' | '.join(map(str, row))} |" for row in rows])


def load() -> str:
    """Processes that wanted to run in the last minute."""
    return f"{os.getloadavg()[0]:.2f}"


def conditions(stock: Stock) -> str:
    """Versions, the processor, and how busy it is, as a sentence."""
    # ARM has numbers only.
    found = re.search(r"^(?:model name|CPU part)\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.M)
    return (
        f"Debian's ggml {stock.ggml_version} ({OPTIONS.arch}), {found[1] if found else 'unknown'} "
        f"with {os.cpu_count()} threads of hardware, load average {load()}."
    )
