# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where the backend cannot serve, it says why in one line, and the program does its work on the
CPU; without the fallback a job that fails ends the prompt."""

import signal
from pathlib import Path

import pytest

from options import OPTIONS, WORK
from reference import MODEL, PROMPT, completion
from server import Server
from stats import HANDED_OVER
from stock import FALLBACK

TOKENS = 8


def test_list_devices(stock, seen):
    """The stock program lists our device, and only with our backend."""
    assert "ROCKET" not in stock.run("llama-completion", "--list-devices", ours=False).text
    listed = lambda output: f"{output.stats.name}: {output.stats.device}"
    whole = lambda output: listed(output) in output.text
    seen(listed(stock.run("llama-completion", "--list-devices", whole=whole)))


# The function by which the backend recognises the newest layout that it speaks, and a name of the
# same length that no ggml exports.
PROBE, BLIND_PROBE = b"ggml_backend_buft_alloc_buffer_n\0", b"ggml_backend_buft_alloc_buffer_?\0"
BLIND = WORK / "libggml-rocket-blind.so"
REFUSALS = {
    "GGML_BACKEND_PATH": (str(BLIND), "has an unknown backend interface"),
    "GGML_ROCKET_DEVICE": ("/dev/accel/no-such-device", "/dev/accel/no-such-device"),
    "GGML_ROCKET_DEVICE ": ("auto", "GGML_ROCKET_DEVICE=model"),
}


@pytest.mark.parametrize("variable", REFUSALS)
def test_refusals(variable, reference, seen):
    """With a ggml of another layout, a device that is not there and a machine without an NPU."""
    value, why = REFUSALS[variable]
    if value == "auto" and OPTIONS.has_npu:
        pytest.skip("this machine has an NPU")
    library = Path(OPTIONS.library).read_bytes()
    assert library.count(PROBE) == 1
    BLIND.write_bytes(library.replace(PROBE, BLIND_PROBE))
    text = reference(MODEL, PROMPT, TOKENS)
    output = text.run(env={variable.strip(): value}, told=False, log=why)
    said = output.lines("ROCKET: ", "without the NPU")
    assert len(said) == 1 and why in said[0] and not output.has_stats, output.stderr
    assert output.generated == text.text
    seen(said[0])


@pytest.mark.parametrize("word", ["none", "off"])
def test_left_alone(word, stock, reference, seen):
    """GGML_ROCKET_DEVICE can disable the NPU: no device, no complaint, the CPU's text."""
    env = {"GGML_ROCKET_DEVICE": word}
    listed = stock.run("llama-completion", "--list-devices", env=env, told=False)
    assert "ROCKET" not in listed.text, listed.text
    text = reference(MODEL, PROMPT, TOKENS)
    output = text.run("-v", env=env, told=False, log="the NPU is not used")
    [said] = output.lines("ROCKET: ")
    assert " I ROCKET: " in output.stderr and not output.has_stats, output.stderr
    assert output.generated == text.text
    seen(said)


# Bytes that are left of the library: nothing, half of the ELF header, that header with one of the
# program headers; and a part that is less than is mapped, even where most of the file is debugging
# information. glibc's loader maps what the program headers say without looking at the file's
# size, so that such a library is a bus error in the loader, before any code of it runs. Then there
# must be no text, and a status that says so.
HEADERS, PART = [0, 32, 120], 16


def test_truncated_library(reference, seen):
    """With a library that was cut short the program says so and goes on on the CPU, as far as it
    comes to that."""
    whole = Path(OPTIONS.library).read_bytes()
    cut = WORK / "libggml-rocket-cut.so"
    text = reference(MODEL, PROMPT, TOKENS)
    for length in [*HEADERS, len(whole) // PART]:
        cut.write_bytes(whole[:length])
        path = {"GGML_BACKEND_PATH": str(cut)}
        output = text.run(ours=False, env=path, log="failed to load ", check=length in HEADERS)
        if output.status:
            assert output.status == -signal.SIGBUS and not output.generated, output
        else:
            assert output.generated == text.text
    seen(f"the last ended with {output.status}")


def test_tensor_split(stock, seen):
    """`-sm tensor`, which splits tensors over several devices, fails with the backend as it does
    without: no device of ours can hold a part of a tensor."""
    refusal = "LLAMA_SPLIT_MODE_TENSOR needs"

    def ends(ours: bool) -> tuple[int, str]:
        words = ["-p", "Hello", "-n", 1, "-no-cnv", "-sm", "tensor"]
        # Whoever succeeds has nothing to say of it.
        said = lambda output: output.status == 0 or refusal in output.stderr
        how = dict(model=stock.full(MODEL), ours=ours, whole=said, told=False, check=False)
        output = stock.run("llama-completion", *words, **how)
        return output.status, output.lines(refusal)[0]

    assert ends(True) == ends(False)
    seen(str(ends(True)))


# On the software model with one core at 1 MHz some jobs of the tiny model take longer than the
# 330 ms that its driver gives a job: of a prompt of 1842 tokens, all in one batch, the job of
# queries and keys takes less than 320 ms, attention more than 340, gate and up more than 400.
SLOW = {"GGML_ROCKET_DEVICE": "model:clock=1,cores=1,job-limit=330"}
LONG = "Once upon a time there was a chip. " * 80
BATCH = ["-b", "2048", "-ub", "2048"]


def test_killed_job(stock, reference, seen):
    """The CPU computes what the kernel kills in the middle of a prompt. Without the fallback that is
    told, and nothing is made of its result; the server serves the next request."""
    model = stock.full("tiny-1")
    words = [*completion(LONG, 4), "-c", 2048, *BATCH]
    text = reference("tiny-1", LONG, 4)
    for attention, killed in [("auto", " rows of 4 heads, 2048 keys) "), ("0", "ffn_gate-0 ")]:
        env = SLOW | {"GGML_ROCKET_ATTENTION": attention, FALLBACK: "0"}
        told = lambda output: output.lines("ROCKET: computing ", "failed")
        how = dict(model=model, whole=told, env=env, check=False)
        output = stock.run("llama-completion", *words, **how)
        assert output.status == 1 and not output.text.strip(), output
        [said] = told(output)
        assert killed in said and "the driver killed the job" in said
        stats = output.stats
        assert stats["matmuls computed in fp16"] > 0 and stats["graphs failed"] == 1, stats.text
        env |= {FALLBACK: "1"}
        output = text.run("-c", "2048", *BATCH, env=env, log="The CPU computes it")
        [said] = told(output)
        assert killed in said and "The CPU computes it" in said
        assert output.stats.matmuls and output.stats[HANDED_OVER], output.stats.text
        verdict = text.judge(output.generated)
    env = SLOW | {FALLBACK: "0"}
    with Server(stock, model, *BATCH, ours=True, env=env) as server, Server(stock, model) as cpu:
        short, long = cpu.tokenize("Hello"), cpu.tokenize(LONG)
        expected = [step[0].id for step in cpu.complete(short, 4)]
        # Twice: the device is well after a kill.
        for _ in range(2):
            assert server.status_of(long, 4) == 500
            assert [step[0].id for step in server.complete(short, 4)] == expected
    seen(f"{verdict}; {said}")
