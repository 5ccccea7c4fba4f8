# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sequences that llama-server decodes together, a row each of every matmul, are the NPU's work and
have the texts that they have alone."""

import pytest

import architectures
from architectures import NMSE
from gguf_tiny import OF_A_STEP
from reference import MODEL, PROMPT, judge
from server import Server

TOKENS = 8
# In CI, and by name only.
FEW, MANY = [4], [1, 2, 8, 16, 32]
# Of a context, for each sequence.
CONTEXT = 128


def prompts(server: Server, count: int) -> list[list[int]]:
    """So many that differ: the first token, and then the others from another place on."""
    first, *rest = server.tokenize(PROMPT)
    return [[first, *rest[at:], *rest[:at]] for at in range(count)]


def together(stock, kind: str, given: list[list[int]], **env: str):
    """The texts of sequences that a server with a slot for each decodes at once, and its statistics."""
    slots = ["-np", str(len(given)), "-c", str(CONTEXT * len(given))]
    with Server(stock, stock.quantised(MODEL, kind), *slots, ours=True, env=env) as server:
        return server.write(*given, count=TOKENS), server.stop().stats


def check_f16(stock, seen, count: int) -> None:
    """In F16 each text is the CPU's, and all steps from GGML_ROCKET_MIN_M rows on are offloaded."""
    with Server(stock, stock.full(MODEL)) as cpu:
        given = prompts(cpu, count)
        texts, stats = together(stock, "F16", given, GGML_ROCKET_MIN_M=str(count))
        agreements = set()
        for prompt, text in zip(given, texts):
            alone = lambda prefix, left: cpu.complete(prompt + prefix, left)
            agreements.add(judge(alone, text, TOKENS))
    # The prompts, which give each sequence its first token, are as many or more.
    assert stats.offloaded("fp16") >= TOKENS * OF_A_STEP, stats.text
    seen(f"{count} sequences: {stats.matmuls} matmuls, {', '.join(sorted(agreements))}")


@pytest.mark.parametrize("count", FEW)
def test_sequences(count, stock, seen):
    check_f16(stock, seen, count)


@pytest.mark.on_request
@pytest.mark.parametrize("count", MANY)
def test_sequences_all(count, stock, seen):
    check_f16(stock, seen, count)


@pytest.mark.on_request
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_sequences_quantised(kind, stock, seen):
    """A quantised weight's matmul rounds a row of activations by itself, so where the NPU computes a
    sequence's rows alone and together the texts are the same. Where it computes them together only,
    alone is what the CPU rounds in its own way."""
    with Server(stock, stock.full(MODEL)) as cpu:
        given = prompts(cpu, 8)
    texts, stats = together(stock, kind, given, GGML_ROCKET_MIN_M="1")
    assert stats.offloaded("int8-hadamard") >= (TOKENS - 1) * OF_A_STEP, stats.text
    alone = [together(stock, kind, [prompt], GGML_ROCKET_MIN_M="1")[0][0] for prompt in given]
    assert texts == alone
    with Server(stock, stock.quantised(MODEL, kind)) as cpu:
        other = [cpu.write(prompt, count=TOKENS)[0] for prompt in given]
    same = sum(text == of_cpu for text, of_cpu in zip(texts, other))
    seen(f"{stats.matmuls} matmuls, the same alone; {same} of {len(given)} are the CPU's")


def test_every_token(reference, seen):
    """With GGML_ROCKET_MIN_M=1 single tokens are the NPU's work too."""
    text = reference(MODEL, PROMPT, TOKENS)
    output = text.run("--no-warmup", env={"GGML_ROCKET_MIN_M": "1"})
    agreement = text.judge(output.generated)
    assert output.stats.offloaded("fp16") == TOKENS * OF_A_STEP, output.stats.text
    seen(f"{output.stats.matmuls} matmuls, {agreement}")


# Architectures that llama.cpp's own test compares, at least.
ARCHITECTURES = 100


@pytest.mark.on_request
def test_every_architecture(stock, seen):
    """With each matmul and all attention on the NPU, single tokens' too, random models of all
    architectures that llama.cpp compares have the CPU's logits."""
    env = {"GGML_ROCKET_MIN_M": "1", "GGML_ROCKET_ATTENTION": "1"}
    output = architectures.run(stock, env=env, limit=3600)
    compared = architectures.rows(output)
    wrong = [row for row in compared if row[1] != "OK" or not row[2] <= NMSE]
    names = {name for name, *_ in compared}
    assert not wrong and len(names) >= ARCHITECTURES, wrong or names
    output.stats.offloaded("fp16")
    seen(f"{len(names)} architectures, NMSE at most {max(error for *_, error in compared)}")
