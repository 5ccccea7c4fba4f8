# SPDX-License-Identifier: MIT OR Apache-2.0
"""No answer is lost: what a failing NPU does not compute the CPU does, in the same call."""

from collections.abc import Mapping

import numpy as np
import pytest

import logits
from boards import Network
from process import Output
from reference import MODEL, PROMPT, completion, judge
from server import Server
from stats import HANDED_OVER
from stock import Stock
from test_sequences import prompts
from test_whisper import ENGLISH, STEPS, error_of
from whisper import Whisper

TOKENS = 8
# Mean KL divergence of F16 weights, whose sums have another order.
NEAR = 1e-5
# The model of the NPU with a fault, and whether the NPU computes nothing at all with it.
FAULTS = {
    "one core": ("wedged=2", False),
    "first core": ("wedged=0", False),
    "no power": ("power=fails,job-limit=1", True),
    "no memory": ("memory=2", False),
    "one core, no memory": ("wedged=1,memory=2", False),
    "no power, no memory": ("power=fails,job-limit=1,memory=2", True),
}
# Those of CI.
SOME = ["one core", "no power", "no memory"]


def faulty(fault: str, **more: str) -> dict[str, str]:
    """The variables for a device with one of FAULTS, and with more of the backend's."""
    variables = {"FALLBACK": "1", "DEVICE": f"model:{FAULTS[fault][0]}"} | more
    return {f"GGML_ROCKET_{name}": value for name, value in variables.items()}


def check_told(output: Output) -> None:
    """The log has one line about failures, which names what finds their cause."""
    said = output.lines("ROCKET: ", "npu-probe first")
    assert 0 < len(said) <= 3 and len(set(said)) == len(said), said
    assert output.stats["matmuls failed"] == 0, output.stats.text


def check_completion(reference, seen, fault: str) -> None:
    """llama-completion writes the CPU's text. A file whose weights the CPU does not rearrange packs
    them when they are first used."""
    _, is_dead = FAULTS[fault]
    text = reference(MODEL, PROMPT, TOKENS)
    for options in [[], ["--no-repack"]]:
        output = text.run(*options, env=faulty(fault, MIN_M="16"))
        check_told(output)
        stats = output.stats
        if is_dead:
            assert output.generated == text.text and not stats.matmuls, stats.text
        verdict = text.judge(output.generated)
    seen(f"{verdict}; {stats[HANDED_OVER]:.0f} lists by the CPU, {stats.matmuls} matmuls by the NPU")


@pytest.mark.parametrize("fault", SOME)
def test_faults(fault, reference, seen):
    check_completion(reference, seen, fault)


@pytest.mark.check("faults_all")
@pytest.mark.on_request
@pytest.mark.parametrize("fault", sorted(set(FAULTS) - set(SOME)))
def test_faults_completion(fault, reference, seen):
    check_completion(reference, seen, fault)


@pytest.mark.check("faults_all")
@pytest.mark.on_request
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_faults_load(kind, stock, seen):
    """Weights that do not fit are told in one line, and the program ends well."""
    model = stock.quantised(MODEL, kind)
    output = stock.run(
        "llama-completion", *completion(PROMPT, TOKENS), model=model, env=faulty("no memory")
    )
    said = output.lines("ROCKET: ", "could not be packed for the NPU")
    assert len(said) <= 1 and len(output.lines("ROCKET: ")) < 6, output.stderr
    assert output.stats["weight tensors left to the CPU"] > 1, output.stats.text
    seen(said[0] if said else "none while it was loaded")


@pytest.mark.check("faults_all")
@pytest.mark.on_request
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_server(fault, stock, seen):
    """Four slots of llama-server each have the CPU's text, again and again."""
    model, count = stock.full(MODEL), 4
    slots = ["-np", str(count), "-c", str(128 * count)]
    env = faulty(fault, MIN_M=str(count))
    verdicts = set()
    with Server(stock, model) as cpu, Server(stock, model, *slots, ours=True, env=env) as server:
        given = prompts(cpu, count)
        for _ in range(2):
            for prompt, text in zip(given, server.write(*given, count=TOKENS)):
                alone = lambda prefix, left: cpu.complete(prompt + prefix, left)
                verdicts.add(judge(alone, text, TOKENS))
        output = server.stop()
    check_told(output)
    seen(f"{', '.join(sorted(verdicts))}; {output.stats[HANDED_OVER]:.0f} lists by the CPU")


def perplexity(stock: Stock, kind: str, env: Mapping[str, str] = {}) -> logits.Run:
    return logits.measure(stock, stock.quantised("plain", kind), True, env, chunks=4)


@pytest.mark.check("faults_all")
@pytest.mark.on_request
@pytest.mark.parametrize("kind", ["F16", "Q8_0"])
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_perplexity(fault, kind, stock, seen):
    """The logits are the CPU's if it computed everything. Else they are as near to it as the
    NPU's."""
    cpu = logits.measure(stock, stock.quantised("plain", kind), False, chunks=4).logits
    mixed = perplexity(stock, kind, faulty(fault))
    if FAULTS[fault][1]:
        assert np.array_equal(mixed.logits, cpu) and not mixed.stats.matmuls
        seen("the CPU's logits")
        return
    npu = logits.divergence(cpu, perplexity(stock, kind).logits)
    lost = logits.divergence(cpu, mixed.logits)
    assert lost <= max(NEAR, 1.5 * npu), (lost, npu)
    seen(f"mean KL divergence {lost:.6f}, without a fault {npu:.6f}")


@pytest.mark.check("whisper_faults")
@pytest.mark.on_request
@pytest.mark.parametrize("fault", FAULTS)
def test_whisper_faults(fault, stock, seen):
    """whisper.cpp hears what it hears on the CPU."""
    whisper = Whisper(stock)
    words = ("f16", ENGLISH, True, STEPS, None)
    cpu = whisper.cpu(*words)
    ours, output = whisper.hear(*words, ours=True, env=faulty(fault))
    check_told(output)
    error = error_of(ours, cpu)
    assert error < NEAR and (not FAULTS[fault][1] or np.array_equal(ours, cpu)), error
    seen(f"NMSE {error:.1e}, {output.stats[HANDED_OVER]:.0f} lists by the CPU")


@pytest.mark.check("faults_all")
@pytest.mark.on_request
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_rpc(fault, stock, reference, seen):
    """A client of ggml's RPC server gets the CPU's text."""
    with Network(stock) as network:
        board = network.board(env=faulty(fault))
        text = reference(MODEL, PROMPT, TOKENS)
        text.stock = network.stock
        output = text.run("--rpc", board.address, "-ngl", "99", ours=False)
        assert board.process.poll() is None, board.said
        assert not FAULTS[fault][1] or output.generated == text.text
        seen(text.judge(output.generated))


def test_fault_is_error(stock, seen):
    """Without the fallback a failure ends the prompt, for people who test boards."""
    told = lambda output: output.lines("ROCKET: computing ", " failed: ")
    how = dict(model=stock.full(MODEL), env=faulty("no power", FALLBACK="0"), check=False)
    output = stock.run("llama-completion", *completion(PROMPT, TOKENS), whole=told, **how)
    assert output.status == 1 and not output.generated, output
    assert output.stats["matmuls failed"] == 1 and not output.stats[HANDED_OVER]
    [said] = told(output)
    seen(said)
