# SPDX-License-Identifier: MIT OR Apache-2.0
"""The same model and prompt give the same text with our backend."""

import json

import pytest

import logits
from options import WORK
from process import Output
from reference import MODEL, PROMPT, PROMPTS, Reference
from stats import Stats


def check_trace(events: list[dict], stats: Stats) -> None:
    """The trace that the backend writes tells of as many matmuls and jobs as its table, and of each
    kind of work."""
    of = lambda kind, **having: [
        e for e in events if e.get("cat") == kind and having.items() <= e.items()
    ]
    assert len(of("matmul")) == stats.matmuls > 0
    for matmul in of("matmul"):
        sizes = [matmul["args"][size] for size in ("rows", "k", "n")]
        assert min(sizes) > 0 and matmul["name"] and matmul["dur"] > 0, matmul
        assert isinstance(matmul["args"]["precision"], str), matmul
    assert len(of("attention")) == stats.attention
    for node in of("attention"):
        assert min(node["args"][size] for size in ("rows", "keys", "heads")) > 0, node
        assert node["name"] and node["dur"] > 0, node
    for kind in ("job", "wait"):
        assert len(of(kind)) == stats["jobs"], f"not as many times {kind} as jobs"
    # Matmuls that share a job are unpacked one by one.
    assert len(of("unpack")) + len(of("softmax")) >= stats["jobs"]
    assert bool(of("softmax")) == bool(stats.attention)
    for kind in ("graph", "pack", "submit"):
        assert of(kind, ph="X"), f"no {kind}"
    # The ends of the arrows from SUBMIT to the job on its core. A job whose outputs look as if it
    # had not run is run again, and counted once.
    assert not stats.is_model or len(of("submit", ph="f")) >= stats["jobs"]


def compare(reference: Reference) -> tuple[Output, str]:
    """Has the model go on with our backend, and says how the texts agree."""
    plain = reference.run(ours=False).generated
    assert plain == reference.text, "llama-completion and llama-server differ without our backend"
    path = WORK / "trace.json"
    output = reference.run(env={"GGML_ROCKET_TRACE": str(path)})
    agreement = reference.judge(output.generated)
    output.stats.check_times()
    output.stats.check_all_seen()
    check_trace(json.loads(path.read_bytes()), output.stats)
    gap = min(step[1].gap for step in reference.steps)
    matmuls = output.stats.offloaded("fp16")
    return output, f"{agreement} ({matmuls} matmuls in FP16, smallest top-2 gap {gap:.6f})"


@pytest.mark.parametrize("model", PROMPTS)
def test_f16_same_text(model, reference, seen):
    seen(compare(reference(model, PROMPTS[model], 64))[1])


# Which layers of a model with three, by GGML_ROCKET_TENSORS, and the matmuls of a prompt that are
# then offloaded: 7 a layer, but 4 of the last, whose feed-forward network sees the last token only,
# as the output does. And the lists that these are computed in: query, key and value together, the
# attention's output, gate and up together, the network's output.
LAYERS = {
    "*": (7 + 7 + 4, 4 + 4 + 2),
    "blk.[0-1].*": (7 + 7, 4 + 4),
    "blk.0.*": (7, 4),
    "!*": (0, 0),
}


@pytest.mark.parametrize("tensors", LAYERS)
def test_layers(tensors, stock, reference, seen):
    """With all, some or none of its layers on the NPU a model stays the same, and what was asked
    for is offloaded."""
    choice = {"GGML_ROCKET_TENSORS": tensors}
    path = WORK / "trace.json"
    output = reference("tiny-3-layers", PROMPT, 24)
    traced = choice | {"GGML_ROCKET_TRACE": str(path)}
    agreement = output.judge((run := output.run(env=traced)).generated)
    matmuls, lists = LAYERS[tensors]
    assert (run.stats.matmuls, run.stats["lists of nodes"]) == (matmuls, lists)
    # Of each layer whose query and key are ours the rotations are computed for us, and of no other.
    ops = [e["args"]["nodes"] for e in json.loads(path.read_bytes()) if e.get("cat") == "cpu"]
    assert sum(ops) == 2 * (matmuls // 7 + (matmuls % 7 > 0)), ops
    model, text = stock.full("tiny-3-layers"), dict(context=64, chunks=2)
    cpu = logits.measure(stock, model, False, **text)
    ours = logits.measure(stock, model, True, choice, **text)
    assert (ours.stats.matmuls > 0) == (matmuls > 0)
    apart = logits.divergence(cpu.logits, ours.logits)
    assert abs(apart) <= 1e-5, f"a mean KL divergence of {apart} from the CPU"
    seen(f"{matmuls} matmuls in {lists} lists, {agreement}, KL divergence {apart:.7f}")


def test_cpu_jobs(stock, seen):
    """A CPU that computes jobs of the NPU while it waits changes no bit of a quantised model."""
    model = stock.quantised("plain", "Q8_0")
    text = dict(context=2048, chunks=1)
    run = lambda jobs: logits.measure(stock, model, True, {"GGML_ROCKET_CPU_JOBS": jobs}, **text)
    alone, shared = run("0"), run("1")
    assert (alone.logits == shared.logits).all()
    row = "jobs computed on the CPU"
    assert alone.stats[row] == 0 < shared.stats[row], shared.stats.text
    seen(f"{shared.stats[row]:.0f} jobs on the CPU, {shared.stats['jobs']:.0f} on the NPU")


def test_small_budget(reference, seen):
    """With less memory than the packed model takes (some 6 MiB in FP16), part of it is offloaded,
    the log says so, and the text is the same."""
    packed, left = "weight tensors on the NPU", "weight tensors left to the CPU"
    told = "weights for the NPU: "
    text = reference(MODEL, PROMPT, 16)
    everything = text.run()
    text.judge(everything.generated)
    output = text.run("-v", env={"GGML_ROCKET_MEM": "4M"}, log=told)
    agreement = text.judge(output.generated)
    few, most = output.stats, everything.stats
    assert 0 < few[packed] < most[packed] and few[left] > 0, few.text
    assert few["KiB of weights on the NPU"] <= 4096
    assert few.offloaded("fp16") < most.matmuls
    line = output.lines(told)[-1]
    assert line.startswith(f"{told}{few[packed]:.0f} tensors") and "left to the CPU: " in line
    seen(f"{few.matmuls} of {most.matmuls} matmuls, {agreement}; {line}")
