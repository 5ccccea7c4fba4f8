# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random graphs: what our device and the CPU compute together, against the CPU alone.

A bad graph is printed with its seed; `cargo xtask llama graphs` with GRAPHS_SEED computes from that
seed on.
"""

import os
import re
import time

import pytest

import process
from stats import AGAIN, FAILED, HANDED_OVER
from stock import FALLBACK, compile_c

# Everything that can be offloaded is, so that small graphs have much of it.
ALL = {"GGML_ROCKET_MIN_M": "2", "GGML_ROCKET_ATTENTION": "1"}
# On one core at 1 MHz longer jobs are killed: about half of the matmuls here. The CPU computes
# those again, so that no graph may fail.
KILLED = ALL | {
    FALLBACK: "1",
    "GGML_ROCKET_DEVICE": "model:clock=1,cores=1,job-limit=6",
}
# One of so many jobs never starts, and runs again.
STALLED = ALL | {FALLBACK: "1", "GGML_ROCKET_DEVICE": "model:stall=20"}
# After this time of a process the NPU may rest.
FAULT_SECONDS = 6


def compute_graphs(stock, seed: int, seconds: int, env: dict[str, str]) -> process.Output:
    words = [*stock.program(compile_c("ggml_graphs")), seed, seconds, 10**9, stock.ggml]
    output = stock.run_once(words, "ggml_graphs", env=env, limit=2 * seconds + 60)
    counts = re.search(r"^graphs (\d+), bad (\d+)\nend$", output.text, re.M)
    assert counts, output.text
    assert counts[2] == "0", f"from seed {seed}:\n{output.text}"
    assert int(counts[1]) > seconds / 30, f"only {counts[1]} graphs in {seconds} s"
    return output


def check(stock, seen, seconds: int) -> None:
    seed = int(os.environ.get("GRAPHS_SEED") or time.time())
    stats = compute_graphs(stock, seed, seconds * 2 // 3, ALL).stats
    assert stats.matmuls and stats.attention and not stats["graphs failed"], stats.text
    seen(f"{stats.matmuls} matmuls, {stats.attention:.0f} nodes of attention")
    end = time.monotonic() + seconds // 3
    jobs, lists, again = 0, 0, 0
    while time.monotonic() < end:
        stats = compute_graphs(stock, seed, FAULT_SECONDS, KILLED).stats
        jobs, lists = jobs + stats["jobs"], lists + stats[HANDED_OVER]
        stats = compute_graphs(stock, seed + 500, FAULT_SECONDS, STALLED).stats
        assert not stats[FAILED], stats.text
        again, seed = again + stats[AGAIN], seed + 1000
    assert jobs and lists and again, (jobs, lists, again)
    seen(f"with killed jobs {jobs:.0f} jobs, and {lists:.0f} lists handed to the CPU")
    seen(f"with stalled jobs {again:.0f} of them run again")


def test_graphs(stock, seen):
    """Two minutes of them, a part of it on devices that kill jobs or do not start them."""
    check(stock, seen, 120)


@pytest.mark.on_request
def test_graphs_long(stock, seen):
    """The same for two hours, or GRAPHS_SECONDS."""
    check(stock, seen, int(os.environ.get("GRAPHS_SECONDS") or 7200))
