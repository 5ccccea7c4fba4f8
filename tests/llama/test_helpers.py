# SPDX-License-Identifier: MIT OR Apache-2.0
"""What judges the checks sees what it should see."""

import struct

import numpy as np
import pytest

import logits
import test_backend_ops
import test_valgrind
from conftest import is_newer
from reference import explain
from server import Candidate, Step
from stats import Stats

pytestmark = pytest.mark.check("helpers")


def cpu(prefix: list[int], count: int) -> list[Step]:
    """A language model of three rules: writes a, b, c, a, b, c ...; after an x, writes only y; and
    at every fourth token x is a near tie."""
    tokens, steps = list(prefix), []
    for _ in range(count):
        best = ord("y") if ord("x") in tokens else b"abc"[len(tokens) % 3]
        gap = 0.0005 if len(tokens) % 4 == 3 else 0.5
        steps.append([Candidate(best, bytes([best]), 0.0), Candidate(ord("x"), b"x", gap)])
        tokens.append(best)
    return steps


TEXTS = {b"abcabcab": [], b"abcxyyyy": [0.0005], b"abxyyyyy": None, b"abcxyyzy": None}


@pytest.mark.parametrize("text,ties", (TEXTS | {b"abcabca": None, b"": None}).items())
def test_ties_explain_a_text(text, ties):
    assert explain(cpu, text, 8) == ties


def logits_file(probabilities: list[float]) -> bytes:
    """With one place: the first of a chunk of three tokens' second half."""
    values = np.log(probabilities)
    scale = (values.max() - values.min()) / 65535
    steps = np.round((values - values.min()) / scale).astype("<u2").tobytes()
    head = struct.pack("<8s6I", b"_logits_", 3, 3, 1, 7, 8, 9)
    return head + struct.pack("<2f", scale, values.min()) + steps + b"\0\0"


def test_logits_are_as_far_apart_as_the_formula_says():
    file = logits_file([0.5, 0.25, 0.25])
    one, other = logits.parse(file), logits.parse(logits_file([0.25, 0.5, 0.25]))
    assert logits.divergence(one, one) == 0 and logits.same_top(one, one) == 1
    assert abs(logits.divergence(one, other) - 0.25 * np.log(2)) < 1e-4
    assert logits.same_top(one, other) == 0
    for length in [0, 5, 10, 21, len(file) - 1]:
        with pytest.raises((AssertionError, ValueError)):
            logits.parse(file[:length])


def test_rows_of_statistics_are_read():
    rows = "matmuls computed in fp16  232\n  graphs failed  0\n  jobs 7\n  ms 12.1\n  (a note)\n"
    stats = Stats("noise\nETA ROCKET statistics: software model: x\n  " + rows)
    assert (stats.name, stats.offloaded("fp16"), stats["ms"]) == ("ROCKET-MODEL0", 232, 12.1)
    for bad in ["noise", f"ROCKET statistics: x\n{rows.replace('failed  0', 'failed  1')}"]:
        with pytest.raises(AssertionError):
            Stats(bad).offloaded()


def test_a_devices_own_line_decides():
    skipped = (
        "Backend 1/2: ROCKET0\n  Skipping\nBackend 2/2: CPU\n  3/3 tests passed\n2/2 backends\n"
    )
    assert test_backend_ops.counts_of(skipped) is None
    tested = skipped.replace("  Skipping", "  MUL_MAT(x): OK\n  395/396 tests passed")
    assert test_backend_ops.counts_of(tested) == (395, 396)


def test_errors_that_chance_makes_are_told_from_faults():
    line = "[MUL_MAT] ERR = {} > 0.0005   {}: FAIL\n".format
    coarse, single = (
        "MUL_MAT(type_a=q4_1,m=16)",
        "MUL_MAT(type_a=f32,m=1,n=1,k=9,bs=[1,1],nr=[1,1])",
    )
    by_chance = line(0.00052, coarse) + line(0.2, single)
    names = {f"{case}: FAIL" for case in [coarse, single]}
    assert test_backend_ops.failed_by_chance(by_chance) == names
    for bad in [
        "",
        line(0.0011, coarse),
        line("nan", coarse),
        line("nan", single),
        line(0.00052, single.replace("m=1", "m=2")),
        "MUL_MAT(x): FAIL",
    ]:
        assert not test_backend_ops.failed_by_chance(bad)
        assert not bad or not test_backend_ops.failed_by_chance(by_chance + bad)


@pytest.mark.parametrize("kind", ["InvalidRead", "Leak_DefinitelyLost", "Leak_PossiblyLost"])
def test_findings_of_the_library_are_told(kind):
    stack = "<stack><frame><obj>/y/{}</obj><fn>pack</fn></frame></stack>"
    report = f"<valgrindoutput><error><kind>{kind}</kind>{stack}</error></valgrindoutput>"
    harmless = kind == "Leak_PossiblyLost"
    assert test_valgrind.judge(report.format("libggml-base.so"), "ours.so") == (not harmless)
    if not harmless:
        with pytest.raises(AssertionError, match=f"{kind}:\n *pack"):
            test_valgrind.judge(report.format("ours.so"), "ours.so")


def test_only_a_newer_ggml_excuses():
    newer = {"0.27.3": False, "0.28.0": True, "1.0": True, "odd": False}
    assert all(is_newer(version) == expected for version, expected in newer.items())
