# SPDX-License-Identifier: MIT OR Apache-2.0
"""What token generation and loading cost with the backend."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import pytest

import page
from options import HERE, WORK
from stats import TIMES, Stats
from stock import Stock

# The formats of most files, and the four ways in which weights lie: as in the file, and rearranged
# by the CPU by blocks of 32 and of 256.
KINDS = ["Q4_0", "Q4_K_M", "Q8_0", "F16"]
# Tokens of a short run and of a long one, and those that llama-bench generates before. The long
# one takes seconds, beside which the start's few hundredths and their scatter are small.
SHORT, LONG, WARM_UP = 8, 264, 1
# Pairs of runs of each side.
ROUNDS = 7
# Tokens of the prompt after which memory is taken: fewest that are offloaded.
PROMPT = 32
# How many times as much user time a token may take.
BAR = 1.1

Taken = dict[str, float]


def bench(
    stock: Stock,
    model: Path,
    ours: bool,
    prompt: int,
    tokens: int,
    *options: object,
    threads: int = 1,
    env: Mapping[str, str] = {},
) -> tuple[Taken, Stats | None]:
    """A run of llama-bench. One thread by default: several wait for each other in loops, and a busy
    machine makes that a matter of luck."""
    file = WORK / "taken.json"
    words = [sys.executable, HERE / "measure.py", file, *stock.command("llama-bench"), "-m", model]
    words += ["-p", prompt, "-n", tokens, "-r", 1, "-t", threads, *options]
    words += [] if tokens else ["--no-warmup"]
    output = stock.run_command(words, "llama-bench", ours=ours, env=env, limit=900)
    return json.loads(file.read_text()), output.stats if ours else None


def of_token(short: Taken, long: Taken, *kinds: str) -> float:
    """What a token takes, without start and load, by the two lengths. Seconds."""
    of_short, of_long = (sum(run[kind] for kind in kinds) for run in (short, long))
    return (of_long - of_short) / (LONG - SHORT)


def pair(stock: Stock, model: Path, ours: bool) -> tuple[float, float, float]:
    """User time of a token, without start and load, by two lengths; and wall and CPU time of all
    but the tokens. Seconds."""
    (short, _), (long, stats) = (bench(stock, model, ours, 0, count) for count in (SHORT, LONG))
    assert not ours or stats.matmuls == 0, "matmuls of tokens"

    def rest(*kinds: str) -> tuple[float, float]:
        slope = of_token(short, long, *kinds)
        return slope, sum(short[kind] for kind in kinds) - slope * (SHORT + WARM_UP)

    return rest("user_s")[0], rest("wall_s")[1], rest("user_s", "system_s")[1]


@pytest.mark.on_request
def test_bench(stock, seen):
    """Token generation costs the CPU what it costs without the backend; and what loading a model
    takes."""
    tokens, loads, missed = [], [], []
    before = page.conditions(stock)
    for kind in KINDS:
        model = stock.quantised("benchmark", kind)
        # One run that does not count reads the file into the page cache.
        bench(stock, model, False, 0, SHORT)
        # Sides alternate, so that a machine that becomes busier meets both.
        runs = [[pair(stock, model, ours) for ours in (False, True)] for _ in range(ROUNDS)]
        plain, ours = ([median(column) for column in zip(*side)] for side in zip(*runs))
        # Of neighbours: what a busy machine does to one it does to the other.
        ratios = sorted(with_us[0] / without[0] for without, with_us in runs)
        ratio = median(ratios)
        # Not "larger": a NaN must not pass.
        good = ratio <= BAR
        missed += [] if good else [f"{kind}: {ratio:.3f}"]
        verdict = f"{ratio:.3f}" + ("" if good else " **missed**")
        spread = f"{ratios[0]:.3f} to {ratios[-1]:.3f}"
        tokens.append([kind, f"{plain[0] * 1e3:.2f}", f"{ours[0] * 1e3:.2f}", verdict, spread])
        # Once a prompt has made it pack what it packs when it is needed.
        (without, _), (with_us, stats) = (
            bench(stock, model, on, PROMPT, 0) for on in (False, True)
        )
        stats.offloaded()
        times = [f"{side[1]:.2f} s, {side[2]:.2f} s" for side in (plain, ours)]
        loads.append([kind, *times, *(f"{run['peak_mib']:.0f} MiB" for run in (without, with_us))])
    conditions = (
        f"{before} At the end of the runs: load average {page.load()}. One thread; medians of "
        f"{ROUNDS} alternating pairs of runs of {SHORT} and {LONG} tokens; the device is the "
        f"{stats.device}."
    )
    heads = [
        "file | without, ms | with, ms | ratio | of pairs",
        "file | load: wall, CPU | with the backend | peak memory | with the backend",
    ]
    page.show(conditions, page.table(heads[0], tokens), page.table(heads[1], loads))
    assert not missed, f"a token takes more than {BAR} times the user time: {missed}"
    seen(f"a token takes at most {BAR} times the user time with {', '.join(KINDS)}")


# ggml's workers wait for their next graph in a loop for so long, on a scale of 0 to 100, before
# they sleep.
POLLS = [0, 50, 100]
# Threads of llama.cpp, and as many of the engine.
POLLING_THREADS = 2


@pytest.mark.on_request
def test_polling(stock, seen):
    """What it costs the engine's threads that ggml's workers wait in a loop while the NPU
    computes, and what token generation costs if they do not."""
    model = stock.quantised("benchmark", "Q8_0")
    before = page.conditions(stock)
    runs: dict[int, list[list[float]]] = {poll: [] for poll in POLLS}
    of_engine = {"NPU_THREADS": str(POLLING_THREADS)}

    def polled(poll: int, ours: bool, prompt: int, tokens: int) -> tuple[Taken, Stats | None]:
        options = {"threads": POLLING_THREADS, "env": of_engine}
        return bench(stock, model, ours, prompt, tokens, "--poll", poll, **options)

    for _ in range(ROUNDS):
        for poll in POLLS:
            prompt, stats = polled(poll, True, 512, 0)
            short, long = (polled(poll, False, 0, tokens)[0] for tokens in (SHORT, LONG))
            token = [1e3 * of_token(short, long, kind) for kind in ("wall_s", "user_s")]
            stages = [stats[TIMES[1]], stats[TIMES[2]]]
            runs[poll].append([*stages, prompt["user_s"], prompt["wall_s"], *token])
    rows = []
    for poll in POLLS:
        values = [f"{median(column):.2f}" for column in zip(*runs[poll])]
        rows.append([str(poll), *values])
    head = (
        "`--poll` | packing, thread-ms | unpacking, thread-ms | prompt: user time, s | wall time, s"
        " | token: wall time, ms | user time, ms"
    )
    conditions = (
        f"{before} At the end of the runs: load average {page.load()}. {POLLING_THREADS} threads of"
        f" llama.cpp and as many of the engine; medians of {ROUNDS} rounds; a prompt of 512 tokens"
        " and 113 million random weights in Q8_0; the device is the software model, whose"
        " arithmetic is in the times of the prompt."
    )
    page.show(conditions, page.table(head, rows))
    seen("; ".join(" ".join(row) for row in rows))
