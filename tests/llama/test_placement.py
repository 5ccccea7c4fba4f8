# SPDX-License-Identifier: MIT OR Apache-2.0
"""The backend changes no weight's place, computes prompts and nothing else, and keeps to what the
user allows it. Counts are judged, never times."""

import json
import re
import subprocess
import sys
from collections import defaultdict

import numpy as np
import pytest

import logits
import process
from gguf_tiny import OF_A_STEP, OF_PROMPT
from process import Output
from reference import PROMPT, completion
from stock import compile_c


def places(output: Output) -> dict[str, float]:
    """MiB of weights by buffer type, from the load log. A first pass only estimates, with sizes of
    zero."""
    sizes: dict[str, float] = defaultdict(float)
    for name, size in re.findall(r"(\S+) model buffer size = +([0-9.]+) MiB", output.stderr):
        sizes[name] += float(size)
    return {name: size for name, size in sizes.items() if size}


# One type that the CPU rearranges on every machine, one that it does not on some, and one that it
# never does; and the same with experts.
FILES = [("tiny-1", "Q4_0"), ("tiny-1", "Q8_0"), ("tiny-1", "F16")]
FILES += [("tiny-experts", "Q4_0"), ("tiny-experts", "F16")]


@pytest.mark.parametrize("name,kind", FILES)
def test_weight_placement(name, kind, stock, seen):
    model = stock.quantised(name, kind)

    def run(*options: str, ours: bool = True, tokens: int = 1, **env: str) -> Output:
        words = [*completion(PROMPT, tokens), "-v", *options]
        how = dict(model=model, ours=ours, env=env, whole=places)
        return stock.run("llama-completion", *words, **how)

    without, plain = places(run(ours=False)), places(run("--no-repack", ours=False))
    with_us, with_plain = run(), run("--no-repack")
    assert places(with_us) == without and places(with_plain) == plain
    prompt = with_us.stats.offloaded()
    assert with_plain.stats.matmuls == prompt
    assert run(tokens=8).stats.matmuls == prompt, "matmuls of tokens that were written"
    none = run(GGML_ROCKET_MEM="0")
    assert none.stats.matmuls == 0, "matmuls without memory for weights"
    assert places(none) == without, "weights that do not fit lie elsewhere"
    # Of one layer 4 weights of attention and 3 behind it; with experts, one more to choose them.
    layer = run(GGML_ROCKET_TENSORS="blk.[0-1].*,!blk.1.*").stats.matmuls
    assert layer == 7 + (name == "tiny-experts")
    seen(f"{without} MiB, {prompt} matmuls")


def test_layers_device(stock, seen):
    """With `-dev` our device is that of the layers: weights lie where they lie without, as many
    matmuls with them are offloaded, and one warning names what it costs."""
    model, disabled = stock.quantised("tiny-1", "Q4_0"), "Flash Attention not supported"
    layers = "is selected for the model's layers"

    def run(*options: str) -> Output:
        words = [*completion(PROMPT, 4), "-v", *options]
        # Without flash attention that is matmuls too.
        how = dict(env={"GGML_ROCKET_ATTENTION": "0"}, whole=places)
        return stock.run("llama-completion", *words, model=model, **how)

    without = run()
    assert not without.lines(layers) and disabled not in without.stderr
    for options, is_off in [([], True), (["-fa", "on"], False)]:
        chosen = run("-dev", stock.device_name, *options)
        assert places(chosen) == places(without)
        assert chosen.stats.matmuls == without.stats.offloaded()
        [said] = chosen.lines("ROCKET: ", layers)
        assert (disabled in chosen.stderr) == is_off, "what the warning says of flash attention"
    # Not a word of it reaches the backend.
    assert run("-dev", "none").stats.matmuls == without.stats.matmuls
    seen(said)


# What makes llama.cpp rotate what goes into attention and comes out of it.
QUANTISED_CACHE = ["-ctk", "q8_0", "-ctv", "q8_0"]


def test_quantised_cache(stock, seen):
    """With a quantised KV cache llama.cpp multiplies by small rotations, a row for each head. They
    stay with the CPU, in prompts and in token generation, and the rest is offloaded as ever."""
    words = completion(PROMPT, 8)
    # Fewer rows than one token has heads.
    how = dict(model=stock.full("tiny-1"), env={"GGML_ROCKET_MIN_M": "4"})
    run = lambda *options: stock.run("llama-completion", *words, *options, **how).stats
    plain, rotated = run(), run(*QUANTISED_CACHE)
    declined = [row for row in rotated if row.startswith("declined: weights are an input")]
    assert rotated.matmuls == plain.offloaded() and declined, rotated.text
    seen(f"{plain.matmuls} matmuls")


def matmuls(text: str) -> dict[str, tuple[float, str]]:
    """Of each line of ggml_weights.c: how far the matmuls are from the CPU's, and whose they are."""
    lines = re.findall(r"^(.+): (\S+) on (\S+)$", text, re.M)
    return {what: (float(error), backend) for what, error, backend in lines}


# Where ggml's own tests draw the line for matmuls.
NEAR = 5e-4


def test_late_weights(stock, seen):
    """Weights that are read straight into their memory after the backend was made are offloaded;
    where they are not, the statistics say why."""
    program = [*stock.program(compile_c("ggml_weights")), stock.ggml]
    run = lambda **env: stock.run_once(program, env=env)
    output = run()
    late = matmuls(output.text)
    for what in ["read late", "set late"]:
        error, backend = late[what]
        assert backend == stock.device_name and error <= NEAR, output.text
        seen(f"{what}: NMSE {error}")
    for why, env in {
        "excluded by GGML_ROCKET_TENSORS": dict(GGML_ROCKET_TENSORS="!*"),
        "beyond GGML_ROCKET_MEM": dict(GGML_ROCKET_MEM="1K"),
        "fewer rows than the threshold (GGML_ROCKET_MIN_M)": dict(GGML_ROCKET_MIN_M="1000"),
    }.items():
        stats = run(**env).stats
        declined = [row for row in stats if row.startswith("declined: ") and "a matmul" not in row]
        assert len(declined) == 1 and why in declined[0] and not stats.matmuls, stats.text


def test_changed_weights(stock, seen):
    """Weights that a graph writes are the CPU's from then on. What a program writes by hand is not
    seen, but by GGML_ROCKET_VERIFY."""
    program = [*stock.program(compile_c("ggml_weights")), stock.ggml]
    output = stock.run_once(program, env={"GGML_ROCKET_VERIFY": "1"})
    found = matmuls(output.text)
    for what in ["before a graph", "before a hand"]:
        error, backend = found[what]
        assert backend == stock.device_name and error <= NEAR, output.text
    error, backend = found["written by a graph"]
    assert backend == "CPU" and error <= NEAR, output.text
    assert len(output.lines("stays on the CPU from now on: a graph writes it")) == 2
    assert "declined: weights that a graph writes" in output.stats, output.stats.text
    # Of the last graph, both matmuls.
    errors = re.findall(r"verified \S+ .*: NMSE (\S+)", output.stderr)
    *others, first, second = map(float, errors)
    assert min(first, second) > 0.1 and max(others) <= NEAR, errors
    seen(f"a graph: NMSE {error} on {backend}; by hand: NMSE {first}, seen")


def test_batched_bench(stock, seen):
    """llama-batched-bench with 1 to 32 sequences at once: a step of token generation multiplies
    one row a sequence, so from GGML_ROCKET_MIN_M sequences on it is the NPU's work."""
    rows, written, alone, work = 8, 2, None, 0.0
    model = stock.full("tiny-1")
    for sequences in [1, 4, 8, 32]:

        def ended(output: Output) -> bool:
            lines = [line for line in output.text.splitlines() if line.startswith("{")]
            return any(json.loads(line)["pl"] == sequences for line in lines)

        # A context that is enough for all, and for what the program warms up with; of each prompt
        # all batches are offloaded.
        words = ["-c", 2048, "-npl", sequences, "-npp", rows, "-ntg", written]
        words += ["--output-format", "jsonl"]
        how = dict(model=model, env={"GGML_ROCKET_MIN_M": str(rows)}, whole=ended)
        stats = stock.run("llama-batched-bench", *words, **how).stats
        # With one sequence only prompts are offloaded.
        alone = alone or stats.offloaded()
        # Of prompts, the matmuls that see the last token of each sequence only.
        of_last_tokens = OF_A_STEP - OF_PROMPT
        generated = of_last_tokens + written * OF_A_STEP if sequences >= rows else 0
        assert stats.matmuls == alone + generated, f"with {sequences} sequences"
        before, work = work, stats["multiply-adds (millions)"]
        assert work > before, f"{sequences} sequences took no more multiply-adds than fewer"
        seen(f"{sequences} sequences: {stats.matmuls} matmuls, {work:.0f} million")


# Rows of the statistics that tell what was placed where.
PLACED = [
    "matmuls computed in fp16",
    "matmuls computed in int8-hadamard",
    "multiply-adds (millions)",
    "weight tensors on the NPU",
    "KiB of weights on the NPU",
    "attention nodes computed",
    "weight tensors left to the CPU",
    "jobs",
]


def test_same_every_run(stock, seen):
    """The same model gets the same placement, and gives the same bits, in each of ten runs on a
    loaded machine. Nothing is decided by a time that was measured."""
    model = stock.quantised("plain", "Q4_0")

    def run() -> tuple[np.ndarray, dict[str, float]]:
        # What the rules say, not what suits tiny models; in one batch, of as many rows as some of
        # the small weights need to be worth it, and others not. Attention would not pay.
        rules = {"GGML_ROCKET_MIN_M": "auto", "GGML_ROCKET_ATTENTION": "32"}
        found = logits.measure(stock, model, True, rules, context=256, chunks=1)
        assert found.stats.offloaded() and found.stats.attention
        return found.logits, {row: found.stats[row] for row in PLACED}

    bits, placed = run()
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        for number in range(1, 10):
            again, place = run()
            assert place == placed, f"run {number}"
            assert np.array_equal(again, bits), f"run {number} gave other bits"
    finally:
        for process in load:
            process.kill()
            process.wait()
    seen(str(placed))
