# SPDX-License-Identifier: MIT OR Apache-2.0
"""`cargo xtask teflon --model FILE`: a user's own network through the delegate, on the model."""

import sys
from pathlib import Path

import numpy as np

import inference
from inference import OPTIONS, Failure, difference, file
from networks import IDENTIFIER

NAME = "own"
# Random bytes that are its input, from the start again if it takes more.
INPUT_BYTES = 1 << 20


def read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Failure(f"reading {path}: {error.strerror}") from None


def main() -> None:
    model = read(OPTIONS.model)
    if not model[4:].startswith(IDENTIFIER):
        raise Failure(
            f"{OPTIONS.model} is not a TensorFlow Lite model: {IDENTIFIER.decode()} is missing after "
            "its first four bytes"
        )
    random = np.random.default_rng(OPTIONS.seed)
    data = read(OPTIONS.input) if OPTIONS.input else random.bytes(INPUT_BYTES)
    if not data:
        raise Failure("the input is empty")
    file(NAME, "tflite").write_bytes(model)
    file(NAME, "input").write_bytes(data)
    inference.client()

    cpu = inference.on_cpu(NAME)
    try:
        npu = inference.on_npu(NAME)
    except Failure as error:
        raise Failure(
            "the delegate did not run this network; docs/teflon.md lists what is known to stop "
            f"it: {error}"
        ) from None
    operators = inference.operators(npu.log)
    print(operators)
    if not operators.taken:
        raise Failure(
            "the delegate takes no operator of this network: all ran on the CPU (it takes uint8 "
            "convolutions with one scale per tensor)"
        )
    print(file(NAME, "report").read_text(), end="")
    emulated = ", under qemu" if OPTIONS.emulator else ""
    print(f"time of this machine{emulated}, ms: prepare, compute")
    for side, one in [("CPU alone", cpu), ("delegate", npu)]:
        print(f"{side:>10} {one.prepared:9.1f} {one.computed:9.1f}")
    if len(cpu.outputs) != len(npu.outputs):
        raise Failure("outputs are missing")
    for theirs, ours in zip(cpu.outputs, npu.outputs):
        unit = f" steps of {theirs.scale:g}" if theirs.scale else ""
        print(f"{theirs.name}: {difference(theirs, ours)}{unit}")


try:
    main()
except Failure as error:
    sys.exit(f"Error: {error}")
