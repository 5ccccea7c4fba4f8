# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs a stock program on the real kernel driver, in a virtual machine (docs/vm.md)."""

import re
from collections.abc import Mapping
from pathlib import Path

import process
from options import OPTIONS, THREADS
from process import Output
from stock import Stock

# Time that the run in the guest may take, seconds.
LIMIT = 900
# Places in the guest.
PROGRAM, MODEL, BACKEND = "/bin/llama-completion", "/model.gguf", "/usr/lib/libggml-rocket.so"


def run_in_guest(stock: Stock, model: Path, words: list[str], env: Mapping[str, str]) -> Output:
    """Has llama-completion say `words` to `model`; the guest's kernel may not complain."""
    program, library = stock.tool("llama-completion"), Path(OPTIONS.library)
    libraries = f"/usr/lib/{OPTIONS.triplet}"
    files = {program: PROGRAM, model: MODEL, library: BACKEND}
    # Where Debian has them, since ggml looks there for its CPU backends.
    files |= {plugin: f"{libraries}/ggml/backends0/{plugin.name}" for plugin in stock.plugins}
    files[stock.loader] = f"/lib/{OPTIONS.loader}"
    for file in [program, library, *stock.plugins]:
        listing = stock.program(file, stock.libraries / "llama")
        listing.insert(listing.index("--argv0"), "--list")
        listed = process.run(listing, "the loader").text
        assert "not found" not in listed, listed
        for needed in map(Path, re.findall(r" => (/.*) \(", listed)):
            files[needed] = f"{libraries}/{needed.name}"
    variables = {"GGML_BACKEND_PATH": BACKEND, "GGML_ROCKET_DEVICE": "/dev/accel/accel0"}
    variables |= {"GGML_ROCKET_STATS": "1", **env}
    command = [OPTIONS.xtask, "vm", "run", "--smp", THREADS, "--limit", LIMIT]
    command += ["--fail-on-complaint"]
    for host, place in files.items():
        command += ["--file", f"{host}:{place}"]
    for name, value in variables.items():
        command += ["--env", f"{name}={value}"]
    command += ["--", PROGRAM, "-m", MODEL, *words]
    # Fetching and building a kernel comes before the run.
    return process.run(command, "llama-completion in a guest", limit=2 * 3600)
