# SPDX-License-Identifier: MIT OR Apache-2.0
"""valgrind finds no invalid access of the library, and nothing that it lost.

valgrind comes from Debian as the programs do, and nothing is installed. It needs the names of
functions within the dynamic loader, which are in a package of their own, beside the loader; and a
kernel that keeps its vDSO to itself, see c/without_auxv.c.
"""

import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from options import OPTIONS, THREADS, WORK, External, skip_without
from reference import PROMPT
from stock import Stock, compile_c

# What valgrind also counts as an error, but what is only said to be pointed into, or still pointed
# to.
HARMLESS = ["Leak_PossiblyLost", "Leak_StillReachable"]
FLAGS = ["--leak-check=full", "--num-callers=40", "--show-leak-kinds=definite", "--xml=yes"]


def judge(report: str, library: str) -> int:
    """The number of findings that are not of `library`; fails if one is."""
    others = 0
    for error in ElementTree.fromstring(report).iter("error"):
        if error.findtext("kind") not in HARMLESS:
            objects = [frame.findtext("obj", "") for frame in error.iter("frame")]
            stack = "\n".join(frame.findtext("fn", "?") for frame in error.iter("frame"))
            ours = any(place.endswith(f"/{library}") for place in objects)
            assert not ours, f"valgrind finds {error.findtext('kind')}:\n{stack}"
            others += 1
    return others


def name_functions(stock: Stock, packages: Path) -> None:
    """Puts the loader's debugging information where valgrind looks for it. It is named by the
    loader's build ID, the first byte of which is the directory."""
    loader = stock.loader.read_bytes()
    for file in packages.glob("usr/lib/debug/.build-id/*/*.debug"):
        if bytes.fromhex(file.parent.name + file.stem) in loader:
            place = stock.loader.with_name(".debug")
            place.mkdir(exist_ok=True)
            shutil.copy(file, place)
            return
    raise External("libc6-dbg is not of the loader's version")


@pytest.mark.on_request
def test_valgrind(stock, seen):
    if not OPTIONS.native:
        pytest.skip("valgrind is for this machine's own programs")
    skip_without("cc")
    packages = Path(OPTIONS.debug_packages or "none")
    launcher, tools = packages / "usr/bin/valgrind.bin", packages / "usr/libexec/valgrind"
    if not launcher.exists() or not tools.exists():
        raise External("there is no package of valgrind, or it has changed")
    name_functions(stock, packages)
    report = WORK / "valgrind.xml"
    # valgrind's launcher takes the loader and the C library that it was built for.
    words = [compile_c("without_auxv"), stock.loader, "--library-path"]
    words += [packages / "usr/lib" / OPTIONS.triplet]
    words += [launcher, *FLAGS, f"--xml-file={report}", *stock.command("llama-completion")]
    words += ["-m", stock.full("tiny-3-layers"), "-p", PROMPT, "-n", 2, "-c", 128, "--temp", 0]
    words += ["-no-cnv", "--no-warmup", "-t", THREADS, "-tb", THREADS]
    # A run took 100 s on a busy machine.
    output = stock.run_command(words, "valgrind", env={"VALGRIND_LIB": str(tools)}, limit=1200)
    others = judge(report.read_text(), Path(OPTIONS.library).name)
    seen(f"{output.stats.offloaded('fp16')} matmuls, {others} findings elsewhere")
