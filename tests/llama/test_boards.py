# SPDX-License-Identifier: MIT OR Apache-2.0
"""Boards on which something does not work, as the software model plays them: after `npu-probe
first` a prompt is right with the profile that it wrote, and where a profile is wrong the first task
that is wrong is found."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import process
from options import OPTIONS
from reference import MODEL, PROMPT
from server import Server

TOKENS = 8

# Options of the model, and the rung that `first` names.
BOARDS = {
    "weight-room=all": "fp16-streams",
    "int8-slack-bank=needed": "int8-exact-banks",
    "int8-reuse=garbage": "int8-reuse",
    "core-idle-mainline=hangs": "form-a",
    "program-at-zero=hangs": "program-at-zero",
    "over-read=bank": "no-slack",
    "cores=2": "cores",
}


def first(board: str, folder: Path) -> Path:
    """Runs `npu-probe first` on a board; returns the profile that it wrote."""
    profile = folder / "profile.json"
    command = [OPTIONS.probe, "first", "--json", "--device", f"model:{board}", "--profile", profile]
    home = {"XDG_CONFIG_HOME": str(folder)}
    output = process.run(command, "npu-probe", env=process.environment(home), cwd=folder, limit=600)
    causes = [cause["name"] for cause in json.loads(output.text)["causes"]]
    assert causes == [BOARDS[board]], output.text
    return profile


def played(board: str, profile: Path, **more: str) -> dict[str, str]:
    """The environment in which the backend runs on a board with a profile."""
    device = {"GGML_ROCKET_DEVICE": f"model:{board}", "ROCKET_PROFILE": str(profile)}
    return device | {f"GGML_ROCKET_{name}": value for name, value in more.items()}


CHECKING = "thread-ms checking first tasks (measured)"
PACKING = "thread-ms packing weights (measured)"
CHECKED = "first tasks checked"


@pytest.mark.check("boards")
@pytest.mark.on_request
@pytest.mark.parametrize("board", BOARDS)
def test_profile_of_first(board, reference, tmp_path, seen):
    """Right after `first` a prompt is right with its profile, in FP16 and in INT8."""
    profile = first(board, tmp_path)
    text = reference(MODEL, PROMPT, TOKENS)
    output = text.run(env=played(board, profile))
    agreement = text.judge(output.generated)
    floats = output.stats.offloaded("fp16")
    assert output.stats.attention, output.stats.text
    # The board has not been calibrated, so the first task of each kind was checked.
    checking, packing = output.stats[CHECKING], output.stats[PACKING]
    checked = output.stats[CHECKED]
    assert checking > 0 and checked > 0, output.stats.text
    cost = f"{checked:.0f} checks took {checking:.2f} thread-ms, packing weights {packing:.2f}"
    # The same integers give the same sums whatever the tiles are.
    expected = text.run(env={"GGML_ROCKET_PRECISION": "w8a8-hadamard"}).generated
    output = text.run(env=played(board, profile, PRECISION="w8a8-hadamard"))
    assert output.generated == expected
    integers = output.stats.offloaded("int8-hadamard")
    assert output.stats.attention, output.stats.text
    seen(f"{floats} matmuls in fp16, {integers} in int8: {agreement}; {cost}")


def changed(profile: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a profile that allows too much."""
    content = json.loads(profile.read_text())
    change(content["profile"])
    copy = profile.with_name("changed.json")
    copy.write_text(json.dumps(content))
    return copy


def reuse_always(profile: dict[str, Any]) -> None:
    """INT8 tasks use what is left in CBUF, and are so narrow that there is some."""
    profile["choices"]["reuse"]["int8"]["value"] = "always"
    for tile in profile["envelope"]:
        if tile["dtype"] == "int8":
            tile["n"] = 32


def no_spare_bank(profile: dict[str, Any]) -> None:
    """INT8 features fill their banks."""
    profile["choices"]["int8_spare_bank"]["value"] = False


@pytest.mark.check("boards")
@pytest.mark.on_request
def test_wrong_first_task_runs_again(reference, tmp_path, seen):
    """A profile allows INT8 reuse on a board where that is garbage: the matmul is computed again
    without it, and the text is right."""
    board = "int8-reuse=garbage"
    profile = changed(first(board, tmp_path), reuse_always)
    text = reference(MODEL, PROMPT, TOKENS)
    expected = text.run(env={"GGML_ROCKET_PRECISION": "w8a8-hadamard"}).generated
    output = text.run(env=played(board, profile, PRECISION="w8a8-hadamard"), log="again")
    assert output.generated == expected
    said = output.lines("ROCKET: ", "again: ", "int8 tasks fetch both operands from now on")
    # Once: from then on nothing is reused.
    assert len(said) == 1, output.stderr
    assert output.stats["graphs failed"] == 0, output.stats.text
    seen(f"{output.stats.offloaded('int8-hadamard')} matmuls in int8; {said[0]}")


# 128 rows of 256 or 768 channels fill CBUF's banks exactly.
EXACT = "Once upon a time there was a chip. " * 64
BATCH = ["-b", "128", "-ub", "128"]


@pytest.mark.check("boards")
@pytest.mark.on_request
def test_distrusted_precision(stock, tmp_path, seen):
    """A profile leaves INT8 features no bank to spare on a board that needs one, and nothing can
    be done about it: the CPU computes that matmul and all later ones, and no request fails.
    llama.cpp asks what the backend supports when it makes a graph, and makes none for a batch like
    the last one: there our backend has the CPU compute its matmuls."""
    board = "int8-slack-bank=needed"
    profile = changed(first(board, tmp_path), no_spare_bank)
    env = played(board, profile, PRECISION="w8a8-hadamard", FALLBACK="1")
    model = stock.full(MODEL)
    served = Server(stock, model, *BATCH, ours=True, env=env)
    with served as server, Server(stock, model, *BATCH) as cpu:
        long = cpu.tokenize(EXACT)[: 4 * 128]
        # The first finds the wrong result, and its later batches are like the one that did.
        for tokens in [long, long[:100], long]:
            expected = [step[0].id for step in cpu.complete(tokens, 4)]
            assert [step[0].id for step in server.complete(tokens, 4)] == expected
        output = server.stop()
    said = output.lines("int8 is not used on this NPU from now on", "The CPU computes it")
    assert len(said) == 1, output.stderr
    stats = output.stats
    assert stats["graphs failed"] == 0, stats.text
    inside = stats["nodes that the CPU computed after an NPU failure (see the log)"]
    declined = stats["declined: a precision that the NPU computed wrong, see the log"]
    assert inside > 0 and declined > 0, stats.text
    seen(f"{inside:.0f} nodes computed by the CPU, {declined:.0f} times declined")
