# SPDX-License-Identifier: MIT OR Apache-2.0
"""No answer is lost: what a failing NPU does not compute the CPU does, in the same call."""

import re
from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pytest

import logits
from boards import Network
from process import Output
from reference import MODEL, PROMPT, completion, judge
from server import Server
from stats import AGAIN, FAILED, HANDED_OVER, Stats
from stock import FALLBACK, Stock, compile_c
from test_sequences import prompts
from test_whisper import ENGLISH, STEPS, error_of
from whisper import Whisper

TOKENS = 8
# Mean KL divergence of F16 weights, whose sums have another order.
NEAR = 1e-5
# Here a job that does not end takes modelled time only.
STRICT = "model:level=strict"
# The model of the NPU with a fault, and whether the NPU computes nothing at all with it.
SINGLE = {
    "one core": ("wedged=2", False),
    "no power": ("power=fails,job-limit=1", True),
    "no memory": ("memory=2", False),
    "stalls": ("stall=20", False),
    "slow": ("clock=2,job-limit=6", False),
}
PAIRS = {
    f"{one}, {other}": (f"{SINGLE[one][0]},{SINGLE[other][0]}", SINGLE[one][1] or SINGLE[other][1])
    for one, other in combinations(SINGLE, 2)
}
FAULTS = SINGLE | {"first core": ("wedged=0", False)} | PAIRS
# Those of CI.
SOME = ["one core", "no power", "no memory"]

# What the NPU may lose in failed jobs, ms, beside a tenth of the good time: 2 s, and the jobs that
# run when these are gone. Each costs 500.
LOST = "NPU ms lost in failed jobs (modelled)"
GOOD = "NPU ms, matmul by matmul, likely (modelled)"
PURSE, IN_FLIGHT = 2000, 12 * 500


def faulty(fault: str, **more: str) -> dict[str, str]:
    """The variables for a device with one of FAULTS, and with more of the backend's."""
    variables = {"FALLBACK": "1", "DEVICE": f"{STRICT},{FAULTS[fault][0]}"} | more
    return {f"GGML_ROCKET_{name}": value for name, value in variables.items()}


def check_told(output: Output) -> None:
    """The log has a line for each kind of failure, which names what finds the cause. Little time is
    lost."""
    said = output.lines("ROCKET: ", "npu-probe first")
    assert 0 < len(said) <= 3 and len(set(said)) == len(said), said
    stats = output.stats
    assert stats[FAILED] == 0, stats.text
    assert stats[LOST] <= PURSE + IN_FLIGHT + stats[GOOD] / 10, stats.text


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
    seen(f"{stats[LOST]:.0f} ms lost")


@pytest.mark.parametrize("fault", SOME)
def test_faults(fault, reference, seen):
    check_completion(reference, seen, fault)


@pytest.mark.check("faults_all")
@pytest.mark.on_request
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in SOME])
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
    verdicts = set()
    with Server(stock, stock.full(MODEL)) as cpu:
        given = prompts(cpu, SLOTS)
        texts, output = serve(stock, given, faulty(fault, MIN_M=str(SLOTS)), rounds=2)
        for prompt, text in zip(given * 2, texts):
            alone = lambda prefix, left: cpu.complete(prompt + prefix, left)
            verdicts.add(judge(alone, text, TOKENS))
    check_told(output)
    seen(f"{', '.join(sorted(verdicts))}; {output.stats[HANDED_OVER]:.0f} lists by the CPU")


SLOTS = 4


def serve(
    stock: Stock, given: list[list[int]], env: Mapping[str, str], rounds: int = 1
) -> tuple[list[bytes], Output]:
    """The texts of a server after prompts that come together, each round anew."""
    slots = ["-np", str(SLOTS), "-c", str(128 * SLOTS)]
    with Server(stock, stock.full(MODEL), *slots, ours=True, env=env) as server:
        texts = [server.write(*given, count=TOKENS) for _ in range(rounds)]
        return sum(texts, []), server.stop()


def perplexity(
    stock: Stock, kind: str, env: Mapping[str, str] = {}, *options: object, chunks: int = 4
) -> logits.Run:
    model = stock.quantised("plain", kind)
    return logits.measure(stock, model, True, env, chunks=chunks, options=options)


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
    cpu = whisper.cpu(*HEARD)
    ours, output = whisper.hear(*HEARD, ours=True, env=faulty(fault))
    check_told(output)
    error = error_of(ours, cpu)
    assert error < NEAR and (not FAULTS[fault][1] or np.array_equal(ours, cpu)), error
    seen(f"NMSE {error:.1e}, {output.stats[HANDED_OVER]:.0f} lists by the CPU")


HEARD = ("f16", ENGLISH, True, STEPS, None)


@pytest.mark.check("faults_all")
@pytest.mark.on_request
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_rpc(fault, stock, reference, seen):
    """A client of ggml's RPC server gets the CPU's text."""
    text = reference(MODEL, PROMPT, TOKENS)
    generated = through_rpc(stock, text, faulty(fault))
    assert not FAULTS[fault][1] or generated == text.text
    seen(text.judge(generated))


def through_rpc(stock: Stock, text, env: Mapping[str, str]) -> bytes:
    """What a client writes whose server has `env`."""
    with Network(stock) as network:
        board = network.board(env=env)
        text.stock = network.stock
        output = text.run("--rpc", board.address, "-ngl", "99", ours=False)
        assert board.process.poll() is None, board.said
        return output.generated


# Matmuls of so many rows are offloaded: more jobs.
ROWS = {"GGML_ROCKET_MIN_M": "4"}
# Of how many jobs one never starts, and whether the purse of lost time is on.
STALLS = {20: "0", 4000: "1"}


def stalling(every: int) -> dict[str, str]:
    """The variables for a device of which one in so many jobs never starts."""
    return {FALLBACK: STALLS[every], "GGML_ROCKET_DEVICE": f"{STRICT},stall={every}"}


def check_stalls(stats: Stats, every: int) -> str:
    """Each job that did not start ran again, and nothing else came of it."""
    assert not stats[FAILED] and not stats[HANDED_OVER], stats.text
    assert stats[AGAIN] == stats["jobs"] // every, stats.text
    return f"{stats[AGAIN]:.0f} of {stats['jobs']:.0f} jobs again"


def check_stalled_logits(
    stock: Stock, seen, kind: str, every: int, *options: object, chunks: int = 4
) -> None:
    """Jobs that never start change no bit of the logits."""
    expected = perplexity(stock, kind, ROWS, *options, chunks=chunks).logits
    found = perplexity(stock, kind, ROWS | stalling(every), *options, chunks=chunks)
    assert np.array_equal(found.logits, expected)
    assert found.stats[AGAIN], found.stats.text
    seen(f"{kind}: {check_stalls(found.stats, every)}")


def test_stalls(stock, seen):
    check_stalled_logits(stock, seen, "F16", 20)


@pytest.mark.check("faults_all")
@pytest.mark.on_request
def test_stalls_perplexity(stock, seen):
    """The same in INT8, and with so few of many jobs that the NPU never rests."""
    check_stalled_logits(stock, seen, "Q8_0", 20)
    check_stalled_logits(stock, seen, "F16", 4000, "-b", "16", "-ub", "16", chunks=20)


@pytest.mark.check("faults_all")
@pytest.mark.on_request
@pytest.mark.parametrize("every", STALLS)
def test_stalls_hosts(every, stock, reference, seen):
    """Nor do they change what other programs write."""
    text, env = reference(MODEL, PROMPT, TOKENS), ROWS | stalling(every)
    output = text.run(env=env)
    assert output.generated == text.run(env=ROWS).generated
    seen(f"llama-completion: {check_stalls(output.stats, every)}")
    given = prompts(text, SLOTS)
    texts, output = serve(stock, given, env)
    assert texts == serve(stock, given, ROWS)[0]
    seen(f"llama-server: {check_stalls(output.stats, every)}")
    assert through_rpc(stock, text, env) == through_rpc(stock, text, {})


@pytest.mark.check("whisper_faults")
@pytest.mark.on_request
@pytest.mark.parametrize("every", STALLS)
def test_whisper_stalls(every, stock, seen):
    whisper = Whisper(stock)
    expected, _ = whisper.hear(*HEARD, ours=True)
    found, output = whisper.hear(*HEARD, ours=True, env=stalling(every))
    assert np.array_equal(found, expected)
    seen(check_stalls(output.stats, every))


# At least so many questions come from a graph of two matmuls: each node, its second run, the CPU.
MANY_QUESTIONS = {"no power": 6, "one core": 2}


def test_aborts(stock, seen):
    """A program that gives up while the NPU fails gets no result: before a job runs again and before
    the CPU computes it."""
    program = [*stock.program(compile_c("ggml_abort")), stock.ggml]
    for fault in MANY_QUESTIONS:
        output = stock.run_once(program, env=faulty(fault))
        lines = output.text.splitlines()
        *aborted, computed, end = lines
        assert end == "end" and all(line.endswith(", aborted") for line in aborted), output.text
        # Devices ask at the same time, so that there may be more questions than up to that answer; and
        # none of the last run came to be answered so.
        asked = [int(number) for number in re.findall(r"^asked (\d+),", output.text, re.M)]
        assert all(count >= at for at, count in enumerate(asked[:-1], 1)), output.text
        assert asked[-1] <= len(aborted), output.text
        result = re.search(r"computed (\S+) on ", computed)
        assert result and float(result[1]) < NEAR, output.text
        # Each of two matmuls, before a second run and before the CPU.
        assert len(aborted) >= MANY_QUESTIONS[fault], output.text
    seen(computed)


def test_fault_is_error(stock, seen):
    """Without the fallback a failure ends the prompt, for people who test boards."""
    told = lambda output: output.lines("ROCKET: computing ", " failed: ")
    how = dict(model=stock.full(MODEL), env=faulty("no power", FALLBACK="0"), check=False)
    output = stock.run("llama-completion", *completion(PROMPT, TOKENS), whole=told, **how)
    assert output.status == 1 and not output.generated, output
    assert output.stats[FAILED] == 1 and not output.stats[HANDED_OVER]
    [said] = told(output)
    seen(said)
