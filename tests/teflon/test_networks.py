# SPDX-License-Identifier: MIT OR Apache-2.0
"""The delegate on the model computes what TensorFlow Lite computes."""

import json

import numpy as np
import pytest

import inference
import networks
from inference import OPTIONS, Tensor, difference, file

# The most by which an output may differ from TensorFlow Lite's: each rounds in its own way, and
# layers pass it on.
TOLERANCE = 2
# An output with no more different values than this would agree with any other such.
FEW_VALUES = 16


@pytest.fixture(scope="session")
def client():
    return inference.client()


def compare(cpu: Tensor, npu: Tensor) -> str:
    distinct = len(np.unique(npu.values))
    assert distinct > FEW_VALUES, f"the outputs have {distinct} values"
    seen = difference(cpu, npu)
    assert seen.largest <= TOLERANCE, str(seen)
    return str(seen)


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_network(name, client, record_property):
    file(name, "tflite").write_bytes(networks.write(name, OPTIONS.seed))
    size = int(np.prod(networks.NETWORKS[name][0]))
    data = np.random.default_rng(OPTIONS.seed).integers(256, size=size, dtype=np.uint8)
    file(name, "input").write_bytes(data.tobytes())

    cpu, npu = inference.on_cpu(name), inference.on_npu(name, "--json")
    told = json.loads(file(name, "report").read_text())
    assert told["jobs"] == told["jobs_completed"] > 0, told
    trap = networks.TRAPS.get(name)
    assert list(told["traps"]) == ([trap] if trap else [])
    seen = f"the model met {trap}" if trap else compare(cpu.outputs[0], npu.outputs[0])
    if OPTIONS.real_driver:
        assert inference.on_driver(name) == told["tasks"], "interrupts are not the model's tasks"
        assert file(name, "guest").read_bytes() == file(name, "npu").read_bytes()
        seen += "; the same on the real driver"
    record_property("seen", f"{told['tasks']} tasks in {told['jobs']} jobs; {seen}")


def tensor(values, kind="u1") -> Tensor:
    return Tensor("o", 1.0, np.array(values).astype(kind))


def test_outputs_must_be_alike_and_of_many_values():
    ramp = np.arange(256)
    assert compare(tensor(ramp), tensor(ramp + (ramp == 7) * TOLERANCE)).startswith("1 of 256")
    for other in [ramp + (ramp == 7) * (TOLERANCE + 1), ramp[:-1], ramp * 0 + 7]:
        with pytest.raises(AssertionError):
            compare(tensor(ramp, "i2"), tensor(other, "i2"))


def test_what_is_no_number_on_one_side_only_differs():
    apart = lambda a, b: difference(tensor([a], "f4"), tensor([b], "f4")).largest
    nan, inf = np.nan, np.inf
    assert [apart(nan, nan), apart(inf, inf), apart(nan, 1), apart(inf, -inf)] == [0, 0, inf, inf]


def test_outputs_are_told_apart():
    text, data = "2.5 1.0\nUINT8 2 0.5 a b\nFLOAT32 4 0 \n", bytes([7, 8, 0, 0, 128, 63])
    parsed = inference.parse(text, data)
    assert (parsed.prepared, parsed.computed) == (2.5, 1.0)
    first, second = parsed.outputs
    assert (first.name, [*first.values], [*second.values]) == ("a b", [7, 8], [1.0])
    for text, data in [(text, data[1:]), (text, data + b"\0"), ("2.5 1.0\n", b"")]:
        with pytest.raises(AssertionError):
            inference.parse(text, data)


def test_a_crash_is_known_below_npu_probe_too():
    for script in ["kill -SEGV $$", "exit 139"]:
        with pytest.raises(inference.Failure, match="SIGSEGV"):
            inference.run(["sh", "-c", script], "it", 60)
    with pytest.raises(inference.Failure, match="ended with 1;"):
        inference.run(["false"], "it", 60)


def test_interrupts_of_the_cores_are_counted():
    text = "    CPU0  CPU1\n 11:  5000   7    GICv3  27 Level     arch_timer\n"
    assert inference.interrupts(text) == 0
    text += " 14:    10   3    GICv3 142 Edge      fdab9000.iommu, fdab0000.npu\n"
    text += " 15:     4   0    GICv3 143 Edge      fdac9000.iommu, fdac0000.npu\n"
    assert inference.interrupts(text) == 17


def test_operators_on_either_side_are_counted():
    text = (
        "idx type            ver support     inputs\n"
        "  0 CONV            v1  supported   in: 84(u8) 85(u8) 2(i32) out: 86(u8)\n"
        "  1 RESHAPE         v1  unsupported in: 86(u8) 1(i32) out: 87(u8)\n"
    )
    found = inference.operators(text)
    assert str(found) == "1 of 2 operators on the NPU, on the CPU RESHAPE"
    assert inference.operators("").taken == 0
