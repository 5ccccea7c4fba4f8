# SPDX-License-Identifier: MIT OR Apache-2.0
"""ggml's own comparison of backends, on the matmuls and attention that we take."""

import csv
import math
import re
from collections import Counter
from collections.abc import Callable

import pytest

from options import HERE, OPTIONS, External

# At most four digits of rows: the one matmul left out has 2 105 344 rows and takes 400 MB, which
# the software model has no use for.
ROWS = "n=[0-9]{1,4},"
# Operation, GGML_ROCKET_PRECISION and cases of the ordinary check.
PARTS = [
    # Each way to decode weights and to compute once. Other types are decoded by ggml too, and
    # computed like these.
    ("MUL_MAT", "auto", f"type_a=(f32|f16|bf16|q8_0|q4_K|iq1_m),type_b=f32,m=[0-9]+,{ROWS}"),
    # The same for matmuls whose rows choose their weights. Those with thousands of output
    # channels take the software model minutes each.
    ("MUL_MAT_ID", "auto", "type_a=(f16|q4_K),type_b=f32,.*,m=[0-9]{1,3},"),
    # What `auto` leaves to FP16 or computes in INT8 for some sizes only: both types that lie in
    # memory as in the file and those that the CPU rearranges.
    ("MUL_MAT", "w8a8-hadamard", "type_a=(q8_0|q4_1|q4_K),type_b=f32,m=16,n=[0-9]{1,2},"),
    ("MUL_MAT_ID", "w8a8-hadamard", "type_a=q8_0,type_b=f32,.*,m=[0-9]{1,3},n=[0-9]{1,2},"),
]
# Attention of three rows: each size of heads, each type of keys and values, sinks, softcap and ALiBi
# with few keys; with more some heads that share them; and sizes that are no multiple of anything.
ATTENTION = "kv=113,nb=3,|nr23=.(4,3|12,1|16,1).,kv=512,nb=3,mask=1,sinks=1|hsk=65,|kv=(96|128),"
# All cases but the largest, and those of 4096 output channels, whose 128 experts have a thousand
# million weights: making these takes the program minutes.
ALL = [
    ("MUL_MAT", "auto", ROWS),
    ("MUL_MAT_ID", "auto", "type_b=f32,.*,m=([0-9]{1,3}|1024|2880),"),
    ("FLASH_ATTN_EXT", "auto", "kv=[0-9]{1,4},"),
]

# Which errors above the program's bound, a normalised mean square of 5e-4, chance may make: such a
# case must only be within the bound in the next run.
#
# The operands are random. Of K = 4096 rotated numbers the largest is 3.8 standard deviations, which
# 127 steps divide; both operands so rounded, and the CPU's own 8 bits, make an expected error of
# 1.66e-4. Of 16 outputs error and result are each a sum of 16 squares, and their ratio is as
# F(16, 16): above the bound in 1.7 % of the runs, above twice the bound in 0.04 %. Measured on the
# model by 400 runs of
#
#     test-backend-ops test -o MUL_MAT -b ROCKET-MODEL0 -p type_a=q4_1,type_b=f32,m=16,n=1,k=4096,
#
# in INT8, with the bound in the program's file set to 1e-30, so that it prints each error:
# geometric mean 1.66e-4, 12 above the bound (3 %), the largest 1.6 times it. In 66 runs of the 136
# cases in INT8 3 errors were above it, in a run each, all of 16 outputs. An error of twice the
# bound is a fault.
EXCESS = 2.0
# A single output may itself be near zero: the ratio of its error to it has a Cauchy distribution,
# and no excess proves a fault. There is one such case, of f32 with K = 2048. In 800 runs as above
# the median of this ratio was 2.5e-4, from which follows a square above the bound in
# 2/pi * 2.5e-4 / sqrt(5e-4) = 0.7 % of the runs; it was in 5, and once 5.3.
SINGLE = re.compile(r"\bm=1,n=1,.*bs=\[1,1\],nr=\[1,1\]")
# Weights that `auto` computes in FP16, and attention, whose error is far below the bound.
FLOATS = re.compile(r"type_a=(f32|f16|bf16),|FLASH_ATTN_EXT")
FAILED = re.compile(r"(?:ERR = (\S+) > (\S+)\s+)?((?:MUL_MAT|FLASH_ATTN)\w*\(.*FAIL)")


def counts_of(text: str) -> tuple[int, int] | None:
    """`n/m tests passed` of our device, whose section must be complete. The exit status and
    "backends passed" say nothing: with a device that does not exist they are just as good."""
    found = re.search(
        r"^Backend \S+ ROCKET(?:(?!^Backend )[^\0])*?(\d+)/(\d+) tests passed", text, re.M
    )
    return (int(found[1]), int(found[2])) if found and found[2] != "0" else None


def failed_by_chance(text: str) -> set[str]:
    """The cases that failed, if chance makes such errors of all of them."""
    failed = [found.groups() for found in map(FAILED.search, text.splitlines()) if found]

    def is_chance(error: str | None, bound: str, case: str) -> bool:
        if error is None or SINGLE.search(case):
            return error is not None and math.isfinite(float(error))
        return float(error) / float(bound) < EXCESS and not FLOATS.search(case)

    return {case for _, _, case in failed} if all(is_chance(*each) for each in failed) else set()


# The settings with which all is taken that can be.
EVERY_ROW = {"GGML_ROCKET_MIN_M": "1", "GGML_ROCKET_ATTENTION": "1"}


@pytest.fixture
def compare(stock, seen) -> Callable[..., None]:
    """Runs the cases of an operation with a precision."""

    def compare(operation: str, precision: str, cases: str, limit: float = 420) -> None:
        words = ["test", "-o", operation, "-b", stock.device_name, "-p", cases]
        env = EVERY_ROW | {"GGML_ROCKET_PRECISION": precision}
        ended = lambda output: output.status or counts_of(output.text)
        how = dict(env=env, whole=ended, check=False, limit=limit)
        run = lambda: stock.run("test-backend-ops", *words, **how)
        output, before = run(), set()
        # No case may fail twice, nor more than two at once.
        for _ in range(2):
            failed = failed_by_chance(output.text)
            if len(failed) not in (1, 2) or failed & before:
                break
            output, before = run(), before | failed
        passed, all_cases = counts_of(output.text) or (0, "?")
        failed = [line for line in output.text.splitlines() if FAILED.search(line)]
        assert passed == all_cases and output.status == 0, f"{passed}/{all_cases}: {failed[:5]}"
        stats = output.stats
        computed = stats.attention if operation == "FLASH_ATTN_EXT" else stats.matmuls
        assert computed >= all_cases, "not all of it was ours"
        if precision != "auto":
            # Attention's matmuls, whose operands are no weights, are in FP16 always.
            assert {"int8-hadamard"} <= set(stats.computed) <= {"int8-hadamard", "fp16"}
        seen(
            f"{passed}/{all_cases} cases on {stats.device}: {stats.computed}, {stats['jobs']:.0f} jobs"
        )

    return compare


@pytest.mark.parametrize("part", PARTS, ids=lambda part: "-".join(part[:2]))
def test_test_backend_ops(part, compare):
    compare(*part)


def test_attention_ops(compare):
    compare("FLASH_ATTN_EXT", "auto", ATTENTION)


@pytest.mark.on_request
@pytest.mark.parametrize("part", ALL, ids=lambda part: part[0])
def test_all_backend_ops(part, compare):
    compare(*part, limit=3000)


def supported(text: str) -> Counter[tuple[str, str, bool]]:
    """Cases by operation, type of weights or keys, and whether they are supported."""
    rows = csv.DictReader(text[text.index('"backend_name"') :].splitlines())
    kind = lambda row: re.search(r"type_[aK]=(\w+)", row["op_params"])[1]
    return Counter((row["op_name"], kind(row), row["supported"] == "1") for row in rows)


SUPPORT = HERE / "support.txt"
RECORD = "`cargo xtask llama test-backend-ops --record` writes it"


@pytest.mark.check("test_backend_ops")
def test_backend_ops_support(stock, seen):
    """Which cases the backend takes, by type of weights or keys, is as in a file that says which it took
    before: a case that is quietly declined passes every test."""
    lines = [f"Cases of ggml {stock.ggml_version}", "operation type supported declined"]
    for operation in ["MUL_MAT", "MUL_MAT_ID", "FLASH_ATTN_EXT"]:
        words = ["support", "-o", operation, "-b", stock.device_name, "--output", "csv"]
        run = lambda: stock.run("test-backend-ops", *words, env=EVERY_ROW, told=False)
        # The longest of several answers is the one that lost nothing.
        cases = supported(max((run().text for _ in range(5)), key=len))
        for name, kind in sorted({case[:2] for case in cases}):
            lines.append(f"{name} {kind} {cases[name, kind, True]} {cases[name, kind, False]}")
    if OPTIONS.record:
        SUPPORT.write_text("\n".join(lines) + "\n")
    kept = SUPPORT.read_text().splitlines()
    if kept[0] != lines[0]:
        raise External(f"not compared: {SUPPORT.name} has {kept[0]!r}, here {lines[0]!r}; {RECORD}")
    assert lines == kept, f"if that is meant, {RECORD}"
    seen(f"{sum(int(line.split()[2]) for line in lines[2:])} cases supported")
