# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention of prompts is ours, with every kind of cache and of batch, and changes no text."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import architectures
import logits
from architectures import NMSE
from gguf_tiny import LAYERS
from options import WORK
from process import Output
from reference import MODEL, PROMPT, PROMPTS, Reference, completion, explain
from server import Server, text_of
from stats import OUT_OF_RANGE

OURS = {"GGML_ROCKET_ATTENTION": "auto"}
OFF = {"GGML_ROCKET_ATTENTION": "0"}
EXCLUDED = "declined: attention excluded by GGML_ROCKET_ATTENTION"
FEW = "declined: attention of few rows"
# Without flash attention llama.cpp has two matmuls a layer instead.
MATMULS = "declined: attention without flash attention (-fa off)"
ADVICE = "flash attention is off"
# Mean KL divergence from the CPU of a model in F16, nats a token: what differs are the orders of
# sums, and the 16 bits that logits are kept with.
NOISE = 1e-5


def test_attention(reference, seen):
    """The prompt's attention is ours, a node a layer, and that of tokens the CPU's; with 0 all of it
    is the CPU's. The text is the same."""
    text = reference(MODEL, PROMPT, 24)
    runs = {
        "auto": text.run(env=OURS),
        "0": text.run(env=OFF),
    }
    agreements = {name: text.judge(run.generated) for name, run in runs.items()}
    assert [run.stats.attention for run in runs.values()] == [LAYERS, 0]
    auto, off = (run.stats for run in runs.values())
    assert auto[FEW] > 0 and not auto[EXCLUDED] and off[EXCLUDED] > 0
    assert auto.matmuls == off.matmuls
    verified = dict(env=OURS | {"GGML_ROCKET_VERIFY": "1"}, log="verified ")
    lines = text.run("-v", **verified).lines("verified ", " heads, ")
    errors = [float(line.rpartition("NMSE ")[2]) for line in lines]
    # The last lines of a log may be lost.
    assert errors and max(errors) <= NMSE, lines
    seen(f"{auto.attention} nodes, NMSE {max(errors)}, {agreements}")


def test_attention_in_matmuls(reference, seen):
    """Without flash attention both matmuls of a layer are ours from as many rows on as the user says,
    else where that pays by the model; where not, a reason is counted. One warning says what would be
    faster, and the text is the same."""
    text = reference(MODEL, PROMPT, 24)
    off = lambda **env: text.run("-v", "-fa", "off", env=env, log="")
    runs = {
        "32 rows": off(),
        "auto": off(GGML_ROCKET_MIN_M="auto"),
        "0": off(GGML_ROCKET_ATTENTION="0"),
    }
    agreements = {name: text.judge(run.generated) for name, run in runs.items()}
    wanted, auto, never = (run.stats for run in runs.values())
    assert wanted.matmuls == never.matmuls + 2 * LAYERS
    # Heads of this size do not pay.
    assert auto[MATMULS] > 0 and never[EXCLUDED] > 0, auto.text + never.text
    for stats in (wanted, auto, never):
        assert not stats.attention and stats["graphs failed"] == 0
    assert [len(run.lines("ROCKET: ", ADVICE)) for run in runs.values()] == [1, 1, 0]
    seen(f"{2 * LAYERS} of {wanted.matmuls} matmuls, {agreements}")


def batches(stock, seen, options: list[object], chunks: int = 2) -> list[dict]:
    """Compares logits of batches that `options` make; what the trace has of attention."""
    path, model = WORK / "trace.json", stock.full(MODEL)
    text = dict(context=256, chunks=chunks, options=options)
    cpu = logits.measure(stock, model, False, **text)
    ours = logits.measure(stock, model, True, {"GGML_ROCKET_TRACE": str(path)}, **text)
    apart = logits.divergence(cpu.logits, ours.logits)
    assert abs(apart) <= NOISE, f"a mean KL divergence of {apart} from the CPU"
    nodes = [e["args"] for e in json.loads(path.read_bytes()) if e.get("cat") == "attention"]
    assert len(nodes) == ours.stats.attention > 0
    sizes = {(node["rows"], node["keys"], node["streams"]) for node in nodes}
    seen(f"rows, keys and streams {sorted(sizes)}: KL divergence {apart:.7f}")
    return nodes


def test_attention_in_batches(stock, seen):
    """A text in several batches meets the keys of those before."""
    cut = ["-b", 256, "-ub", 64]
    nodes = batches(stock, seen, cut)
    assert {node["rows"] for node in nodes} == {64}
    assert len(nodes) == LAYERS * 2 * 256 // 64
    # The same bits, whatever the number of threads.
    run = lambda threads: logits.measure(
        stock, stock.full(MODEL), True, context=256, chunks=2, options=[*cut, "-t", threads]
    )
    one, *others = (run(threads).logits for threads in (1, 2, 3))
    assert all(np.array_equal(one, other) for other in others)


def test_attention_of_sequences(stock, seen):
    """Several sequences together, in a cache for each and in one."""
    nodes = batches(stock, seen, ["-b", 1024, "-ub", 1024], chunks=4)
    both = {node["streams"] for node in nodes}
    nodes = batches(stock, seen, ["-b", 1024, "-ub", 1024, "-kvu"], chunks=4)
    assert both | {node["streams"] for node in nodes} == {1, 4}


@pytest.mark.parametrize(
    "kinds", [("q8_0", "q8_0"), ("q4_0", "q5_1"), ("bf16", "f32")], ids="-".join
)
def test_attention_of_caches(kinds, stock, seen):
    """With keys and values of other types nothing is lost that the CPU does not lose with them."""
    keys, values = kinds
    model, text = stock.full(MODEL), dict(context=128, chunks=2)
    exact = logits.measure(stock, model, False, **text).logits
    text["options"] = ["-ctk", keys, "-ctv", values, "-fa", "on"]
    cpu = logits.measure(stock, model, False, **text)
    ours = logits.measure(stock, model, True, **text)
    assert ours.stats.attention == 2 * LAYERS
    loss, own = (logits.divergence(exact, run.logits) for run in (ours, cpu))
    assert loss <= 1.05 * own + NOISE, f"a loss of {loss}, on the CPU of {own}"
    seen(f"loss {loss:.6f}, on the CPU {own:.6f}")


# The least part of tokens that both take for the likeliest, and the largest mean KL divergence. With
# scores in FP16 they are 0.978 and 0.0017.
BIASED_TOP, BIASED_LOSS = 0.995, 1e-4


def test_attention_of_biases(stock, seen):
    """A trained model with large biases of queries and keys predicts the same. The guard lets all of
    its attention run on the NPU."""
    model = stock.full("biased")
    cpu = logits.on_cpu(stock, model)
    runs = {
        "attention": logits.with_backend(stock, model),
        "matmuls only": logits.measure(stock, model, True, OFF),
    }
    ours = runs["attention"].stats
    # A node for each layer and batch.
    assert ours.attention == 2 * 16 and not ours[OUT_OF_RANGE], ours.text
    for name, run in runs.items():
        apart, top = logits.divergence(cpu, run.logits), logits.same_top(cpu, run.logits)
        assert abs(apart) <= BIASED_LOSS and top >= BIASED_TOP, f"{name}: {apart}, {top}"
        seen(f"{name}: KL divergence {apart:.7f}, {100 * top:.1f} % the same")


# Random models of llama.cpp's own: ALiBi, softcap, windows, sinks, and heads whose values are a part
# of compressed keys.
ARCHITECTURES = ["bloom", "mpt", "gemma2", "gemma3", "gpt-oss", "deepseek2"]


def test_attention_of_architectures(stock, seen):
    names = "|".join(ARCHITECTURES)
    whole = lambda output: len(architectures.rows(output)) == len(ARCHITECTURES)
    output = architectures.run(stock, "-a", f"^({names})$", whole=whole)
    compared = architectures.rows(output)
    assert sorted(name for name, *_ in compared) == sorted(ARCHITECTURES)
    errors = {name: error for name, verdict, error in compared if verdict == "OK"}
    assert len(errors) == len(ARCHITECTURES) and max(errors.values()) <= NMSE, output.text
    # Two layers each, in two of the contexts that are compared.
    assert output.stats.attention >= 2 * len(ARCHITECTURES)
    seen(f"{output.stats.attention} nodes, {errors}")


def test_attention_of_slots(stock, reference, seen):
    """A server with several slots answers as one without us, also what begins as before."""
    texts: list[Reference] = [reference(MODEL, prompt, 8) for prompt in PROMPTS.values()]
    with Server(stock, stock.full(MODEL), "-np", "3", ours=True) as server:
        with ThreadPoolExecutor(len(texts)) as pool:
            written = list(pool.map(lambda text: server.complete(text.tokens, text.count), texts))
        agreements = [text.judge(text_of(steps)) for text, steps in zip(texts, written)]
        # The prompt once more with another behind it: a slot has its keys.
        longer = texts[0].tokens + texts[1].tokens
        reused = text_of(server.complete(longer, 8, cached=True))
        fresh = lambda prefix, count: server.complete(longer + prefix, count)
        assert explain(fresh, reused, 8) is not None, f"with keys of the slot: {reused!r}"
        output = server.stop()
    assert output.stats.attention > 2 * LAYERS
    seen(f"{output.stats.attention} nodes, {agreements}")


# Tokens of a context that is shifted, and tokens written: it is full twice. Of the three models this
# one's text has no tie up to there.
SHIFTED, WRITTEN, WRITER = 256, 340, "tiny-54"
# All matmuls and all attention, those of single tokens too.
EVERY_ROW = {"GGML_ROCKET_MIN_M": "1", "GGML_ROCKET_ATTENTION": "1"}


@pytest.mark.on_request
def test_context_shift(stock, seen):
    """A context that is full is shifted: half of its keys go, and the others get new positions. With
    each token's attention ours the text is the CPU's, before and after."""
    words = completion(PROMPTS[WRITER], WRITTEN)
    words += ["-c", SHIFTED, "--context-shift", "-fa", "on", "--no-warmup", "-v"]

    def run(ours: bool) -> Output:
        return stock.run(
            "llama-completion",
            *words,
            model=stock.full(WRITER),
            ours=ours,
            env=EVERY_ROW if ours else {},
            whole=lambda output: "context full" in output.stderr,
            limit=600,
        )

    cpu, ours = run(False), run(True)
    assert ours.generated == cpu.generated
    # A batch of the prompt, and one for each token but the last.
    assert ours.stats.attention == LAYERS * WRITTEN, ours.stats.text
    shifts = [len(run.lines("context full")) for run in (cpu, ours)]
    assert shifts == [2, 2]
    seen(f"{shifts[1]} shifts, {ours.stats.attention} nodes")


def test_shifted_keys(stock, seen):
    """A server that meets a part of a former prompt behind another beginning moves its keys; a batch
    that meets them is ours."""
    prompts = list(PROMPTS.values())
    answers, nodes = {}, 0
    for ours in (False, True):
        options = ["--cache-reuse", "16", "-c", "512"]
        with Server(stock, stock.full(MODEL), *options, ours=ours) as server:
            first, kept, last = (server.tokenize(prompt) for prompt in prompts)
            server.complete(first + kept, 8, cached=True)
            steps = server.complete(first[:8] + kept + last, 8, cached=True)
            answers[ours], moved = text_of(steps), server.reused
            if ours:
                nodes = server.stop().stats.attention
    assert answers[True] == answers[False]
    # More than what both begin with.
    assert moved > 8 + 16, moved
    assert nodes == 2 * LAYERS
    seen(f"{moved} tokens reused, {nodes} nodes")
