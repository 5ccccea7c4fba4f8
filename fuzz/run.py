#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Builds the fuzzers, runs them, and reports the number of inputs and the coverage.

Corpora are text files, one input a line in hex: hundreds of files of ten bytes would be hard to
review. New inputs of a run stay below target/fuzz; --bless merges them into the corpora.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

FUZZ = Path(__file__).resolve().parent
TESTS = FUZZ.parent / "tests/fuzz"
# Programs, and for each target `seeds`, the corpus and the regressions of the repository, what
# was `found` on this machine, and inputs that `failed`.
WORK = Path(os.environ.get("CARGO_TARGET_DIR", FUZZ.parent / "target")).absolute() / "fuzz"

TARGETS = sorted(file.stem for file in (FUZZ / "fuzz_targets").glob("*.rs"))

# Naming it keeps build scripts and macros, which run in the compiler, free of instrumentation.
TRIPLE = "x86_64-unknown-linux-gnu"

# Coverage for libFuzzer, and AddressSanitizer. Without `trace-compares`, which takes more than
# half of the time: the targets build registers from choices, so that there is no magic number
# to be guessed.
RUSTFLAGS = (
    "--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module"
    " -Cllvm-args=-sanitizer-coverage-level=3"
    " -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
    " -Cllvm-args=-sanitizer-coverage-pc-table"
)

# When one input counts as a hang (s), as too large (MB), and how long it may be (bytes).
LIMITS = ["-timeout=20", "-rss_limit_mb=3072", "-malloc_limit_mb=1024", "-max_len=4096"]


def build():
    toolchain = tomllib.loads((FUZZ / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    environment = os.environ | {"RUSTUP_TOOLCHAIN": toolchain}
    # What an outer cargo tells about itself.
    for name in ("CARGO", "RUSTC", "RUSTDOC"):
        environment.pop(name, None)
    install = ["rustup", "toolchain", "install", toolchain, "--profile", "minimal"]
    subprocess.run(install, check=True)
    cargo = ["cargo", "build", "--release", "--target", TRIPLE, "--target-dir", WORK]
    subprocess.run(cargo, cwd=FUZZ, env=environment | {"RUSTFLAGS": RUSTFLAGS}, check=True)


def fuzzer(target, *options):
    failed = WORK / "failed" / target
    failed.mkdir(parents=True, exist_ok=True)
    program = WORK / TRIPLE / "release" / target
    return [program, *LIMITS, f"-artifact_prefix={failed}/", *options]


def empty(kind, target):
    folder = WORK / kind / target
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def start(target, seconds):
    seeds = empty("seeds", target)
    for kind in ("corpus", "regressions"):
        lines = (TESTS / kind / f"{target}.txt").read_text().splitlines()
        # Regressions have a name before the input.
        inputs = [line.split()[-1] for line in lines if line and not line.startswith("#")]
        for index, text in enumerate(inputs):
            (seeds / f"{kind}-{index}").write_bytes(bytes.fromhex(text))
    found = WORK / "found" / target
    found.mkdir(parents=True, exist_ok=True)
    command = fuzzer(target, f"-max_total_time={seconds}", "-print_final_stats=1", found, seeds)
    with (WORK / f"{target}.log").open("wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)


def end(target, process):
    """Waits for a fuzzer; prints its statistics, or its log if it failed. Returns if it passed."""
    status = process.wait()
    log = (WORK / f"{target}.log").read_text(errors="replace")

    def number(key):
        return int((re.findall(key + r"\s*(\d+)", log) or [0])[-1])

    count = number("stat::number_of_executed_units:")
    if status != 0 or count == 0:
        print(log, file=sys.stderr)
        print(
            f"{target} failed ({status}); the failing inputs are in {WORK}/failed/{target}: when"
            f" fixed, add them to tests/fuzz/regressions/{target}.txt, in hex and with a name",
            file=sys.stderr,
        )
        return False
    seconds, edges = number(" in "), number(" cov:")
    print(f"RESULT {target}: {count} inputs in {seconds} s, {edges} edges")
    return True


def bless(target):
    """Writes a minimal set of inputs with the same coverage as the corpus, short ones first."""
    least = empty("least", target)
    known = [WORK / kind / target for kind in ("seeds", "found")]
    merge = fuzzer(target, "-set_cover_merge=1", least, *known)
    subprocess.run(merge, stderr=subprocess.DEVNULL, check=True)
    inputs = sorted((file.read_bytes() for file in least.iterdir()), key=lambda i: (len(i), i))
    head = "# SPDX-License-Identifier: MIT OR Apache-2.0\n# Written by `fuzz/run.py --bless`.\n"
    text = head + "".join(f"{one.hex()}\n" for one in inputs if one)
    (TESTS / "corpus" / f"{target}.txt").write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="time for all, which run at once")
    parser.add_argument("--bless", action="store_true", help="merge new inputs into the corpora")
    parser.add_argument("target", nargs="*", help=f"run only these: {', '.join(TARGETS)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.target) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    targets = arguments.target or TARGETS
    build()
    running = [(target, start(target, arguments.seconds)) for target in targets]
    # All of them end, whatever becomes of one.
    if not all([end(target, process) for target, process in running]):
        sys.exit(1)
    if arguments.bless:
        for target in targets:
            bless(target)


if __name__ == "__main__":
    main()
