# SPDX-License-Identifier: MIT OR Apache-2.0
"""llama-cpp-python and node-llama-cpp write the same tokens with the backend and without."""

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

import process
from options import HERE, OPTIONS, THREADS, WORK, External, skip_without
from process import Output
from reference import MODEL, PROMPT, TIE_NATS
from stats import Stats
from stock import Stock
from test_hosts import NPM

FETCH_LIMIT, BUILD_LIMIT, RUN_LIMIT = 600, 7200, 300

# The source release of llama-cpp-python, with what pip must find it to be, and the ggml in it.
PYTHON = HERE / "llama-cpp-python.txt"
PYTHON_RELEASE, GGML = PYTHON.read_text().partition("==")[2].split()[0], "0.25.3"
# Packages that build it, and that it imports.
BUILDERS = ["cmake==4.1.0", "ninja==1.13.0"]
IMPORTS = ["numpy>=1.26,<3", "typing-extensions>=4.5,<5", "diskcache>=5.6.1,<6", "jinja2>=3,<4"]
# Its libraries with the CPU backend built in, and nothing else; for any machine of this
# architecture, since what is built is kept.
ON = ["BUILD_SHARED_LIBS", "CMAKE_BUILD_RPATH_USE_ORIGIN"]
PARTS = ["COMMON", "TESTS", "TOOLS", "EXAMPLES", "SERVER"]
OFF = ["GGML_NATIVE", "LLAMA_CURL", *(f"LLAMA_BUILD_{part}" for part in PARTS)]
OPTIMISED = [f"-DCMAKE_{language}_FLAGS_RELEASE=-O1 -DNDEBUG" for language in ("C", "CXX")]
CMAKE = ["-DCMAKE_BUILD_TYPE=Release", *OPTIMISED]
CMAKE += [f"-D{name}=ON" for name in ON] + [f"-D{name}=OFF" for name in OFF]


def fetched(*command: object, cwd: Path) -> None:
    """Runs what asks a registry."""
    output = process.run([*command], cwd=cwd, limit=FETCH_LIMIT, check=False)
    if output.status:
        raise External(f"{command[:4]}: {output.stderr[-500:]}")


def both(stock: Stock, command: list[object], cwd: Path, **env: str) -> tuple[dict, dict, Stats]:
    """What a script prints without the backend, and with it; and the statistics."""

    def run(ours: bool) -> tuple[dict[str, Any], Output]:
        output = stock.run_once(command, ours=ours, env=env, cwd=cwd, limit=RUN_LIMIT)
        # Other lines may be the log's.
        return (
            json.loads([line for line in output.text.splitlines() if line[:1] == "{"][-1]),
            output,
        )

    (without, _), (ours, output) = run(False), run(True)
    assert len(without["tokens"]) == len(ours["tokens"]) > 0
    return without, ours, output.stats


@pytest.mark.on_request
def test_python(stock, seen):
    """The libraries of a source release. Its ggml is older than Debian's, with another layout of
    the backend interface; and its CPU backend is built in, as pip builds it."""
    if not OPTIONS.native:
        pytest.skip("it is built for this machine")
    skip_without("cc", "c++")
    directory = WORK / "python"
    python = directory / "venv/bin/python"
    source = build(directory, python)
    command = [python, HERE / "llama_cpp_greedy.py", stock.full(MODEL), PROMPT, THREADS]
    without, ours, stats = both(stock, command, directory, PYTHONPATH=str(source))
    assert ours["ggml"] == GGML
    # The same, at least up to a tie.
    pairs = zip(without["tokens"], ours["tokens"], without["leads"])
    lead = next((lead for one, other, lead in pairs if one != other), 0.0)
    assert lead < TIE_NATS, f"a token differs where the CPU's best logit leads by {lead}"
    tokens = len(ours["tokens"])
    seen(f"{stats.offloaded('fp16')} matmuls, {tokens} tokens, the same up to a tie of {lead:.6f}")


def build(directory: Path, python: Path) -> Path:
    """Fetches and builds it, unless that is done; returns the directory of its package."""
    source = directory / f"llama_cpp_python-{PYTHON_RELEASE}"
    stamp = directory / "complete"
    wanted = "\n".join([PYTHON.read_text(), *BUILDERS, *IMPORTS, *CMAKE])
    if stamp.exists() and stamp.read_text() == wanted:
        return source
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    process.run(["python3", "-m", "venv", directory / "venv"])
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    fetched(*pip, "install", *BUILDERS, *IMPORTS, cwd=directory)
    print(f"fetching llama-cpp-python {PYTHON_RELEASE} (77 MB), and building it, for ten minutes")
    sources = ["--no-deps", "--no-binary", "llama-cpp-python", "-r", PYTHON]
    fetched(*pip, "download", *sources, cwd=directory)
    with tarfile.open(f"{source}.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    cmake, ninja = (directory / "venv/bin" / name for name in ("cmake", "ninja"))
    configure = [cmake, "-S", "vendor/llama.cpp", "-B", "build", "-G", "Ninja", *CMAKE]
    configure += [f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    process.run(configure, cwd=source, limit=BUILD_LIMIT)
    process.run([ninja, "-C", "build", "llama"], cwd=source, limit=BUILD_LIMIT)
    (source / "llama_cpp/lib").symlink_to("../build/bin")
    stamp.write_text(wanted)
    return source


NODE_RELEASE, LEAST_NODE = "3.22.1", 20


@pytest.mark.on_request
def test_node(stock, seen):
    """node-llama-cpp, as npm has it and under a stock node. Nothing of it is changed: it loads what
    GGML_BACKEND_PATH names as llama.cpp's own programs do."""
    if not OPTIONS.native:
        pytest.skip("node is this machine's")
    skip_without("node", "npm")
    version = process.run(["node", "--version"]).text.strip()
    if int(version.removeprefix("v").split(".")[0]) < LEAST_NODE:
        pytest.skip(f"needs node {LEAST_NODE} or later, and this machine has {version}")
    directory = WORK / f"node-{NODE_RELEASE}"
    if not (directory / "complete").exists():
        directory.mkdir(exist_ok=True)
        # npm puts things where it finds a package. Binaries for others, and for graphics cards,
        # are options of it, and some 600 MB.
        (directory / "package.json").write_text('{"private":true}')
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        npm += ["--omit=dev", "--omit=optional", f"node-llama-cpp@{NODE_RELEASE}"]
        fetched(*npm, f"@node-llama-cpp/{NPM}@{NODE_RELEASE}", cwd=directory)
        (directory / "complete").touch()
    # Beside it, since node lets a script use only what is installed there.
    script = shutil.copy(HERE / "node_greedy.mjs", directory)
    command = ["node", script, stock.full("plain"), PROMPT, 16, THREADS]
    without, ours, stats = both(stock, command, directory)
    assert ours == without
    matmuls, tokens = stats.offloaded("fp16"), len(ours["tokens"])
    seen(f"under node {version}: {matmuls} matmuls, the same {tokens} tokens")
