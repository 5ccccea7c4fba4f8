# SPDX-License-Identifier: MIT OR Apache-2.0
"""Python packages that contain ggml write the same text with the backend, which the package
rocket_npu loads into them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import process
from options import HERE, OPTIONS, ROOT, THREADS, WORK
from reference import MODEL, PROMPT
from stats import Stats
from stock import check_no_fault
from test_bindings import FETCH_LIMIT, fetched
from whisper import Whisper

PACKAGES = ["xllamacpp==2026.10.11549", "pywhispercpp==1.5.1", "libggml-python==0.20.2.post1"]
# The software model hears slowly.
LIMIT = 1200


@pytest.fixture(scope="module")
def run(stock):
    """Runs python_host.py with a host, with the backend and without."""
    if not OPTIONS.native:
        pytest.skip("Python is this machine's")
    folder = WORK / "python-hosts"
    python, stamp = folder / "venv/bin/python", folder / "complete"
    if not (stamp.exists() and stamp.read_text() == "\n".join(PACKAGES)):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        process.run(["python3", "-m", "venv", folder / "venv"], limit=FETCH_LIMIT)
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        fetched(*pip, "--only-binary", ":all:", *PACKAGES, cwd=folder)
        stamp.write_text("\n".join(PACKAGES))
    # As the wheel has it.
    package = folder / "package/rocket_npu"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(ROOT / "python/rocket_npu", package)
    shutil.copy(OPTIONS.library, package / "libggml-rocket.so")

    def once(ours: bool, host: str, *given: object) -> tuple[dict[str, Any], process.Output]:
        # The package finds the backend by itself.
        env = stock.environment(ours, {"PYTHONPATH": str(package.parent)})
        env.pop("GGML_BACKEND_PATH", None)
        device = OPTIONS.device if ours else "none"
        command = [python, HERE / "python_host.py", host, device, *given]
        output = process.run(command, env=env, cwd=folder, limit=LIMIT)
        check_no_fault(output, {})
        lines = [line for line in output.text.splitlines() if line[:2] == '{"']
        return json.loads(lines[-1]), output

    def both(host: str, *given: object) -> tuple[str, Stats]:
        (without, _), (ours, output) = once(False, host, *given), once(True, host, *given)
        assert without["devices"] == [] and ours["devices"] == [stock.device_name]
        assert without["text"] == ours["text"], (without["text"], ours["text"])
        return ours["text"], output.stats

    return both


@pytest.mark.on_request
@pytest.mark.check("python_hosts")
def test_xllamacpp(run, stock, seen):
    """Its functions are in an extension module, which no other library sees before."""
    text, stats = run("xllamacpp", stock.full(MODEL), PROMPT, THREADS)
    assert text
    seen(f"{stats.offloaded('fp16')} matmuls, the same {len(text)} characters")


@pytest.mark.on_request
@pytest.mark.check("whisper_python")
def test_pywhispercpp(run, stock, seen):
    """Its ggml is of another version, in files with other names."""
    whisper = Whisper(stock)
    sound: Path = whisper.part("en-Wikipedia-Ignore_All_Rules", (0, 4))
    text, stats = run("pywhispercpp", whisper.model("f16"), sound, THREADS)
    assert text
    seen(f"{stats.offloaded('fp16')} matmuls, the same text: {text}")


@pytest.mark.on_request
@pytest.mark.check("python_hosts")
def test_libggml(run, seen):
    """A package that leaves it to others to load its libraries."""
    run("libggml")
    seen("the device is there")
