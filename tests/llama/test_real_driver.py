# SPDX-License-Identifier: MIT OR Apache-2.0
"""Stock llama.cpp on the real kernel driver, in a virtual machine (docs/vm.md)."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

import process
from options import OPTIONS, THREADS
from process import Output
from reference import MODEL as SEED, PROMPT, completion
from stock import Stock

# Time that the run in the guest may take, seconds.
LIMIT = 900
# Places in the guest.
PROGRAM, MODEL, BACKEND = "/bin/llama-completion", "/model.gguf", "/usr/lib/libggml-rocket.so"


def run_in_guest(stock: Stock, model: Path, words: list[str], env: Mapping[str, str]) -> Output:
    """Has llama-completion say `words` to `model`; the guest's kernel may not complain."""
    program, library = stock.tool("llama-completion"), Path(OPTIONS.library)
    libraries = f"/usr/lib/{OPTIONS.triplet}"
    files = {PROGRAM: program, MODEL: model, BACKEND: library}
    # Where Debian has them, since ggml looks there for its CPU backends.
    files |= {f"{libraries}/ggml/backends0/{plugin.name}": plugin for plugin in stock.plugins}
    files[f"/lib/{Path(OPTIONS.loader).name}"] = stock.loader
    for file in [program, library, *stock.plugins]:
        listing = stock.program(file, stock.libraries / "llama")
        listing.insert(listing.index("--argv0"), "--list")
        listed = process.run(listing, "the loader").text
        assert "not found" not in listed, listed
        for needed in map(Path, re.findall(r" => (/.*) \(", listed)):
            files[f"{libraries}/{needed.name}"] = needed
    variables = {"GGML_BACKEND_PATH": BACKEND, "GGML_ROCKET_DEVICE": "/dev/accel/accel0"}
    variables |= {"GGML_ROCKET_STATS": "1", **env}
    command = [OPTIONS.xtask, "vm", "run", "--smp", THREADS, "--limit", LIMIT]
    command += ["--fail-on-complaint"]
    for place, host in files.items():
        command += ["--file", f"{host}:{place}"]
    for name, value in variables.items():
        command += ["--env", f"{name}={value}"]
    command += ["--", PROGRAM, "-m", MODEL, "-t", THREADS, *words]
    # Fetching and building a kernel comes before the run.
    return process.run(command, "llama-completion in a guest", limit=2 * 3600)


@pytest.mark.on_request
def test_real_driver(stock, reference, seen):
    """It writes what it writes outside on the model."""
    if OPTIONS.arch != "arm64":
        pytest.skip("needs `--arch arm64`")
    # Otherwise each side measures from how many rows on the NPU pays.
    rows = {"GGML_ROCKET_MIN_M": "8"}
    text = reference(SEED, PROMPT, 16)
    outside = text.run(env=rows)
    agreement = text.judge(outside.generated)
    inside = run_in_guest(stock, stock.full(SEED), completion(PROMPT, 16), rows)
    assert inside.generated == outside.generated
    matmuls = inside.stats.offloaded("fp16")
    assert matmuls == outside.stats.offloaded("fp16") and not inside.stats.is_model
    nodes = inside.stats.attention
    assert nodes == outside.stats.attention > 0, inside.stats.text
    seen(f"{matmuls} matmuls and {nodes} nodes of attention on {inside.stats.device}: the model's text; the CPU's: {agreement}")
