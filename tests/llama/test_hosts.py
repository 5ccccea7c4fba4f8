# SPDX-License-Identifier: MIT OR Apache-2.0
"""One library serves every layout of ggml's backend interface, and many contexts.

Small hosts in C load the ggml of a distribution as programs do and let it load its backends; what
they then print must be right. Debian's ggml is of the newest layout; the binaries that come with
node-llama-cpp have those of former ones, have other SONAMEs, and are loaded with RTLD_LOCAL. Python's
packages have more versions, with the CPU backend linked to them.
"""

import re
import shutil
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import process
from options import OPTIONS, WORK, External, skip_without
from process import Output
from stock import compile_c

# npm's name of node-llama-cpp's binaries, and what Python's packages call the architecture.
NPM = {"amd64": "linux-x64", "arm64": "linux-arm64"}[OPTIONS.arch]
WHEEL_ARCH = {"amd64": "x86_64", "arm64": "aarch64"}[OPTIONS.arch]

# What a host must print, by the first word of the line.
OWN, LENT = "own in .*: .* good", "lent in .*: .* good"
EXPECTED = {
    # The last after the backend was loaded again.
    "matmul": ["F16 own in CPU: .* good", f"F16 {LENT}", f"Q8_0 {OWN}", f"Q8_0 {LENT}"]
    + [f"Q4_0 {OWN}", f"Q4_K {OWN}", "F16 own in CPU: .* good"],
    "attention": [".* good"],
    "feature": ["DEVICE = .*", "PRECISION = .*", "MIN_M = .*"],
    # Those of the backend: as many as were set, and none when it is freed.
    "threads": ["1 of 1", "3 of 3", "0 of 0"],
    # Before the second of two matmuls, and not when the callback is gone.
    "abort": ["after 2: aborted", "after 0: computed"],
    # Weights of before, with the backend unloaded.
    "left": ["on_cpu good"],
    "loaded": ["again"],
}


@dataclass(frozen=True)
class Host:
    """A ggml, and what it must do with the backend."""

    ggml: str = ""  # as its `ggml_version` says; Debian's says it in a file's name
    package: str = ""  # npm's version of node-llama-cpp
    wheel: str = ""  # PyPI's package, and its version
    precision: str = "auto"  # GGML_ROCKET_PRECISION, and what matmuls may be computed in
    computed: tuple[str, ...] = ("fp16", "int8-hadamard")
    # Whether the CPU's kernels rearrange Q4_0; not those built for any 64-bit ARM.
    rearranges: bool = True
    refusal: str = ""  # of the line that says why it goes on without the NPU


# Normalised mean square error that matmuls may have against the CPU's, where ggml's own tests draw
# the line; numbers that have nothing to do with the CPU's are 1 to 2 apart from them.
LIMIT = 5e-4
ANY_ARM = OPTIONS.arch != "arm64"
HOSTS = [
    Host(),
    Host(precision="w8a8-hadamard", computed=("int8-hadamard",)),
    # One of each layout before Debian's, and the last before them.
    Host("0.0.1", "3.13.0", refusal="is older than 0.9.1"),
    Host("0.9.4", "3.14.0", rearranges=ANY_ARM),  # does not mark the nodes to be computed
    Host("0.9.7", "3.16.2", rearranges=ANY_ARM),  # does
    Host("0.25.1", "3.22.1"),
    Host("0.20.2", wheel="libggml-python==0.20.2", rearranges=ANY_ARM),
]
# For ARM one of them takes SVE, which an RK3588 has not, and there is none of the other.
if OPTIONS.arch == "amd64":
    HOSTS += [
        Host("0.13.1", wheel="libggml-python==0.13.1"),
        Host("0.26.0", wheel="llama-cpp-py-sync==0.11548"),
    ]


def name_of(host: Host) -> str:
    node = f"node-llama-cpp {host.package}" if host.package else ""
    return node or host.wheel.replace("==", " ") or f"Debian {host.precision}"


@pytest.mark.parametrize("host", HOSTS, ids=name_of)
def test_hosts(host, stock, seen, request):
    request.node.ggml = host.ggml
    program = compile_c("ggml_host")
    if host.package or host.wheel:
        directory = fetch(host.package) if host.package else fetch_wheel(host.wheel)
        library = min(directory.glob("libggml.*"))
        words = [*stock.program(program, directory), LIMIT, library, directory]
    else:
        words = [*stock.program(program), LIMIT, stock.ggml]
    env = {"GGML_ROCKET_PRECISION": host.precision}
    seen(judge(stock.run_once(words, "ggml_host", env=env), host, host.ggml or stock.ggml_version))


def judge(output: Output, host: Host, ggml: str) -> str:
    text = output.text
    lines = lambda word: re.findall(rf"^{word} (.*)", text, re.M)
    assert lines("ggml") == [ggml], text
    assert text.endswith("end\n"), text
    listed = [line for line in lines("device") if line.startswith("ROCKET")]
    if host.refusal:
        [line] = output.lines("ROCKET: ")
        assert not listed and host.refusal in line and "goes on without the NPU" in line
        return line
    stats = output.stats
    # ACCEL is 3 in every version.
    assert listed == [f"{stats.name} 3 {stats.device}"], listed
    for word, expected in EXPECTED.items():
        seen = lines(word)
        assert len(seen) == len(expected) and all(map(re.fullmatch, expected, seen)), seen
    assert ("Q4_0 own in CPU_REPACK:" in text) == host.rearranges, text
    assert set(stats.computed) <= set(host.computed), stats.computed
    assert stats.attention == 1, stats.text
    return f"{stats.offloaded()} matmuls in {', '.join(stats.computed)}, and attention"


def fetch(version: str) -> Path:
    """Fetches and unpacks node-llama-cpp's binaries, unless they are there: a published version
    does not change. Returns the directory of the libraries."""
    skip_without("npm")
    parent = WORK / "npm"
    directory, fresh = parent / f"{NPM}-{version}", parent / f"{NPM}-{version}.new"
    if not directory.exists():
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        command = ["npm", "pack", "--silent", f"@node-llama-cpp/{NPM}@{version}"]
        output = process.run(command, cwd=fresh, limit=180, check=False)
        if output.status:
            raise External(f"fetching {command[-1]}: {output.stderr}")
        [archive] = fresh.glob("*.tgz")
        with tarfile.open(archive) as files:
            files.extractall(fresh, filter="data")
        archive.unlink()
        fresh.rename(directory)
    return directory / "package/bins" / NPM


def fetch_wheel(package: str) -> Path:
    """Fetches and unpacks a package of PyPI, unless it is there. Returns the directory of the
    libraries."""
    directory = WORK / "pypi" / f"{package.replace('==', '-')}-{WHEEL_ARCH}"
    fresh = directory.with_name(f"{directory.name}.new")
    if not directory.exists():
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        # The libraries are the same for each Python.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", fresh]
        command += ["--disable-pip-version-check", "--only-binary", ":all:"]
        command += ["--python-version", "3.11"]
        for number in ["2014", "_2_27", "_2_28"]:
            command += ["--platform", f"manylinux{number}_{WHEEL_ARCH}"]
        output = process.run([*command, package], limit=180, check=False)
        if output.status:
            raise External(f"fetching {package}: {output.stderr}")
        [archive] = fresh.glob("*.whl")
        with zipfile.ZipFile(archive) as files:
            files.extractall(fresh)
        archive.unlink()
        fresh.rename(directory)
    return next(directory.rglob("libggml-base.so*")).parent


# Each child, and the parent before and after.
CHILD = ["inherited: good on CPU", "rewritten: good on CPU", "new: good on CPU"]
ENDED = ["child ended with 0"]
SAID = "this process was forked after its parent opened the NPU"


def test_forks(stock, seen):
    """Children of a process that has used the NPU compute on the CPU, say so, and leave the
    parent's NPU alone."""
    program = [*stock.program(compile_c("ggml_fork")), stock.ggml]
    output = stock.run_once(program)
    on = stock.device_name
    parent, kept = [f"parent: good on {on}"], ["kept graph: good"]
    first = [*CHILD, *ENDED, *parent, f"kept graph on {on}", *kept]
    others = [*kept, *ENDED, CHILD[0], *ENDED, *CHILD, *ENDED]
    lines = output.text.splitlines()
    assert lines == [*first, *others, *parent, *kept, "end"], output.text
    # One line in each child, and statistics of the parent only.
    assert len(output.lines(SAID)) == 4 and output.stderr.count("ROCKET statistics") == 1
    seen(f"4 children; {output.stats.matmuls} matmuls of the parent")


# KiB that the process may grow by in 56 rounds of four contexts. The packed weights of one context
# are 224 KiB, so that one lost in each round is 12544; the C library's own reserves for threads
# come to some thousand.
GROWTH = 8192
# Open files that it may have more of by then: working buffers are kept for as many matmuls as
# ever were computed at the same time, which four threads need not do in the first rounds. One file
# lost in each round would be 56.
MORE_FILES = 16


def test_contexts(stock, seen):
    """64 contexts of one process, computed from several threads at once, and contexts that come
    and go leave nothing behind."""
    words = [*stock.program(compile_c("ggml_contexts")), stock.ggml]
    output = stock.run_once(words)
    text = output.text
    assert text.endswith("rounds 256 of 256\nend\n") and "together 64 of 64\n" in text, text
    early, late = (re.search(rf"after {n}: (\d+) KiB, (\d+) files", text) for n in (8, 64))
    more_kib, more_files = (int(late[n]) - int(early[n]) for n in (1, 2))
    assert more_kib <= GROWTH and more_files <= MORE_FILES, text
    matmuls = output.stats.offloaded("fp16")
    seen(f"{matmuls} matmuls; {more_kib} KiB and {more_files} files more in 56 rounds")
