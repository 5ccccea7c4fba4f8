# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs inferences: by TensorFlow Lite alone, with the delegate on the model, and with the delegate
on the kernel's driver."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).parent
# See `command` in xtask/src/teflon.rs.
OPTIONS = SimpleNamespace(**json.loads(os.environ["ROCKET_TEFLON"]))
WORK = Path(OPTIONS.target) / "teflon"
LIBRARIES = Path(OPTIONS.packages, "usr/lib", OPTIONS.triplet)
RUNTIME = LIBRARIES / "libtensorflow-lite.so.2.14.1"
DELEGATE = Path(OPTIONS.packages, "usr/lib/teflon/libteflon.so")

# Bytes are unsigned, or of a type that hardly any network puts out.
TYPES = {"INT8": "i1", "INT16": "<i2", "INT32": "<i4", "FLOAT32": "<f4"}
# Time to compile the client, and that a guest may take with the build of its kernel, seconds.
COMPILE_LIMIT, GUEST_LIMIT = 60, 2 * 3600


class Failure(Exception):
    """Why an inference did not come to its end."""


class Tensor(NamedTuple):
    """An output. The scale of one that is not quantised is 0."""

    name: str
    scale: float
    values: np.ndarray


class Difference(NamedTuple):
    """How far two runs' values of an output are apart."""

    differing: int
    of: int
    largest: float  # infinite where one run has no number

    def __str__(self) -> str:
        share = 100 * self.differing / max(self.of, 1)
        return (
            f"{self.differing} of {self.of} outputs ({share:.1f} %) differ from TensorFlow Lite's, "
            f"by up to {self.largest:g}"
        )


def difference(ours: Tensor, theirs: Tensor) -> Difference:
    a, b = (tensor.values.astype(float) for tensor in (ours, theirs))
    assert a.shape == b.shape, "outputs of different lengths"
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf))
    return Difference(int((~same).sum()), a.size, float(apart.max(initial=0)))


class Inference(NamedTuple):
    prepared: float  # milliseconds, with the delegate's compilation
    computed: float
    outputs: list[Tensor]
    log: str  # what program, TensorFlow Lite and delegate wrote to stderr


def parse(text: str, data: bytes, log: str = "") -> Inference:
    """What infer.c printed, and the outputs that it wrote."""
    times, *lines = text.splitlines()
    outputs = []
    for line in lines:
        kind, length, scale, name = line.split(" ", 3)
        own, data = data[: int(length)], data[int(length) :]
        assert len(own) == int(length), "outputs are missing"
        outputs.append(Tensor(name, float(scale), np.frombuffer(own, TYPES.get(kind, "u1"))))
    assert outputs and not data, "infer told not all outputs"
    return Inference(*map(float, times.split()), outputs, log)


def file(name: str, extension: str) -> Path:
    """That of the network `name`."""
    return WORK / f"{name}.{extension}"


def run(command: list[object], what: str, limit: float, **more: str) -> subprocess.CompletedProcess:
    """Runs a program, which must succeed."""
    words, env = [str(word) for word in command], os.environ | more
    streams = dict(stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    try:
        done = subprocess.run(words, env=env, timeout=limit, **streams)
    except subprocess.TimeoutExpired:
        by = ", which --limit sets" if limit == OPTIONS.limit else ""
        raise Failure(f"{what} did not end in {limit} s{by}") from None
    if done.returncode:
        # Below `npu-probe run` a signal is one behind 128.
        number = -done.returncode if done.returncode < 0 else done.returncode - 128
        known = {one.value: one.name for one in signal.Signals}
        how = f"crashed, {known[number]}" if number in known else f"ended with {done.returncode}"
        tail = " | ".join(line.strip() for line in done.stderr.splitlines()[-4:])
        raise Failure(f"{what} {how}; its last lines: {tail}")
    return done


def client() -> Path:
    """Compiles the program that loads TensorFlow Lite and the delegate."""
    program = WORK / "infer"
    words = ["-O1", "-Wall", "-Wextra", "-Werror", "-o", program, HERE / "infer.c", "-ldl"]
    run([OPTIONS.compiler, *words], "compiling infer.c", COMPILE_LIMIT)
    return program


def infer(name: str, side: str, what: str, start: list[object], *delegate: Path) -> Inference:
    """Computes the network `name`, whose model and input are written."""
    command = [*start, *OPTIONS.emulator, OPTIONS.loader, "--library-path", LIBRARIES]
    command += [WORK / "infer", RUNTIME, file(name, "tflite"), file(name, "input")]
    # The delegate lists the operators.
    listing = {"TEFLON_DEBUG": "verbose"}
    done = run([*command, file(name, side), *delegate], what, OPTIONS.limit, **listing)
    return parse(done.stdout, file(name, side).read_bytes(), done.stderr)


def on_cpu(name: str) -> Inference:
    return infer(name, "cpu", "TensorFlow Lite without the delegate", [])


def on_npu(name: str, *options: str) -> Inference:
    """With the delegate on the model; `options` are those of `npu-probe run`, which writes its
    report."""
    start = [OPTIONS.probe, "run", *options, "--preload", OPTIONS.preload]
    start += ["--report", file(name, "report"), "--"]
    return infer(name, "npu", "the delegate", start, DELEGATE)


def on_driver(name: str) -> int:
    """With the delegate on the kernel's driver in a virtual machine, the output beside the others';
    returns the interrupts of the NPU, one for each task."""
    program, model, data, output = "/bin/infer", "/model", "/input", "/tmp/output"
    runtime, delegate = (f"/{path.relative_to(OPTIONS.packages)}" for path in (RUNTIME, DELEGATE))
    files = {program: WORK / "infer", runtime: RUNTIME, delegate: DELEGATE}
    files |= {model: file(name, "tflite"), data: file(name, "input")}
    files[f"/lib/{Path(OPTIONS.loader).name}"] = OPTIONS.loader
    for loaded in [WORK / "infer", RUNTIME, DELEGATE]:
        listing = [*OPTIONS.emulator, OPTIONS.loader, "--list", "--library-path", LIBRARIES, loaded]
        listed = run(listing, "the loader", OPTIONS.limit).stdout
        assert "not found" not in listed, listed
        for needed in map(Path, re.findall(r" => (/.*) \(", listed)):
            files[f"/usr/lib/{OPTIONS.triplet}/{needed.name}"] = needed
    command = [OPTIONS.xtask, "vm", "run", "--fail-on-complaint"]
    for place, host in files.items():
        command += ["--file", f"{host}:{place}"]
    for place, extension in [(output, "guest"), ("/proc/interrupts", "interrupts")]:
        file(name, extension).unlink(missing_ok=True)
        command += ["--out", f"{place}:{file(name, extension)}"]
    command += ["--", program, runtime, model, data, output, delegate]
    run(command, "the delegate in a guest", GUEST_LIMIT)
    return interrupts(file(name, "interrupts").read_text())


def interrupts(text: str) -> int:
    """How many of the NPU's cores the kernel has counted, on all processors."""
    lines = [line.split() for line in text.splitlines() if line.rstrip().endswith(".npu")]
    counts = (re.match(r"[\d\s]*", " ".join(words[1:]))[0] for words in lines)
    return sum(int(count) for row in counts for count in row.split())


class Operators(NamedTuple):
    """The operators of a network, as the delegate sorts them."""

    taken: int
    left: list[str]  # those that stay on the CPU

    def __str__(self) -> str:
        left = f", on the CPU {', '.join(self.left)}" if self.left else ""
        return f"{self.taken} of {self.taken + len(self.left)} operators on the NPU{left}"


def operators(log: str) -> Operators:
    """Reads the delegate's list: number, name, version, whether it is supported."""
    rows = re.findall(r"^\s*\d+\s+(\S+)\s+\S+\s+(un)?supported\s+in:", log, re.M)
    return Operators(sum(not un for _, un in rows), [name for name, un in rows if un])
