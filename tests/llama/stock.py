# SPDX-License-Identifier: MIT OR Apache-2.0
"""Debian's stock llama.cpp in a private directory, and how to run it there.

The binaries need a newer C library than this machine may have, so their own dynamic loader starts
them, with their own libraries. One thing is special: ggml looks for its backends in a directory
that was fixed when Debian built it (and that does not exist here), and then next to
`/proc/self/exe`, which is the file of the loader. So the loader gets a directory of its own, with
links to the CPU backends beside it.
"""

import copy
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import process
from options import HERE, OPTIONS, THREADS, WORK, External
from process import Output
from stats import device_name

COMPILE = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror"]

FALLBACK = "GGML_ROCKET_FALLBACK"

# The name under which the package places our backend among ggml's (xtask/src/dist/deb.sh).
PACKAGED = "libggml-hexagon-rocket.so"


class Stock:
    """The binaries, and the backend that they are to load."""

    # What each program is started by.
    prefix: tuple[str, ...] = ()
    # Whether programs find our backend among ggml's own, as our package places it: ggml loads it
    # before the CPU's then. Else by GGML_BACKEND_PATH, last.
    is_packaged = False

    def __init__(self) -> None:
        self.root = Path(OPTIONS.packages)
        self.libraries = self.root / "usr/lib" / OPTIONS.triplet
        self.ggml = self.libraries / "libggml.so.0"
        self.plugins = list(self.libraries.glob("ggml/backends0/libggml-cpu*"))
        versions = [file.name for file in self.libraries.glob("libggml-base.so.*")]
        if not self.plugins or not versions:
            raise External("the packages have no ggml, or no CPU backend of it")
        self.ggml_version = max(versions, key=len).removeprefix("libggml-base.so.")
        self.loader = self._place_loader()
        is_model = OPTIONS.device.startswith("model")
        self.device_name = device_name(is_model)

    def _place_loader(self) -> Path:
        self._private = tempfile.TemporaryDirectory()
        private = Path(self._private.name)
        for plugin in self.plugins:
            (private / plugin.name).symlink_to(plugin)
        if self.is_packaged:
            (private / PACKAGED).symlink_to(OPTIONS.library)
        return Path(shutil.copy(OPTIONS.loader, private / "ld.so"))

    def elsewhere(self, prefix: Sequence[str], *plugins: str, is_packaged: bool = False) -> Self:
        """The same binaries, started by `prefix`, which find more of ggml's backends."""
        other = copy.copy(self)
        other.is_packaged = is_packaged
        other.prefix = tuple(prefix)
        other.plugins = list(self.plugins)
        for plugin in plugins:
            other.plugins += self.libraries.glob(f"ggml/backends0/libggml-{plugin}.so")
        other.loader = other._place_loader()
        return other

    def tool(self, name: str) -> Path:
        libexec = f"usr/libexec/{OPTIONS.triplet}"
        for place in ["usr/bin", f"{libexec}/llama.cpp-tests", f"{libexec}/llama/bin"]:
            if (self.root / place / name).exists():
                return self.root / place / name
        raise External(f"the packages contain no {name}")

    def program(self, program: Path, *directories: Path) -> list[str]:
        """The words that start a program of any origin, with the libraries of `directories` and
        then of the packages."""
        path = ":".join(map(str, [*directories, self.libraries]))
        words = [self.loader, "--argv0", program.name, "--library-path", path, program]
        return [*self.prefix, *OPTIONS.emulator, *map(str, words)]

    def command(self, tool: str) -> list[str]:
        return self.program(self.tool(tool), self.libraries / "llama")

    def environment(self, ours: bool, added: Mapping[str, str] = {}) -> dict[str, str]:
        """With our backend, or without."""
        backend = {} if self.is_packaged else {"GGML_BACKEND_PATH": OPTIONS.library}
        backend |= {
            "GGML_ROCKET_DEVICE": OPTIONS.device,
            # Tiny models would not pay.
            "GGML_ROCKET_MIN_M": "32",
            "GGML_ROCKET_STATS": "1",
            # Otherwise the CPU would hide a failure.
            FALLBACK: "0",
        }
        return process.environment((backend if ours else {}) | dict(added))

    def run(self, tool: str, *arguments: object, model: Path | None = None, **how: Any) -> Output:
        """Runs a tool, see `run_command`. What computes is given a `model`."""
        given = ["-m", model, "-t", THREADS] if model else []
        return self.run_command([*self.command(tool), *given, *arguments], tool, **how)

    def run_command(
        self,
        command: Sequence[object],
        name: str,
        *,
        ours: bool = True,
        env: Mapping[str, str] = {},
        whole: Callable[[Output], object] = lambda _: True,
        told: bool = True,
        check: bool = True,
        limit: float = 120,
    ) -> Output:
        """Runs a command line, again where its end was lost: where it is not `whole`, or with our
        backend has no statistics although that is `told`."""
        how = dict(ours=ours, env=env, cwd=self.root, limit=limit, check=check)

        def attempt() -> Output:
            return self.run_once(command, name, **how)

        def is_whole(output: Output) -> object:
            return (output.has_stats or not (ours and told)) and whole(output)

        return process.until(attempt, is_whole)

    def run_once(
        self,
        command: Sequence[object],
        name: str = "",
        *,
        ours: bool = True,
        env: Mapping[str, str] = {},
        **how: Any,
    ) -> Output:
        """Runs a command line once, in the environment of `ours` and `env`; see `process.run`."""
        output = process.run([*map(str, command)], name, env=self.environment(ours, env), **how)
        check_no_fault(output, env)
        return output


def check_no_fault(output: Output, env: Mapping[str, str]) -> None:
    """Without a fault nothing fails. Whoever sets FALLBACK in `env` has one."""
    if output.has_stats and FALLBACK not in env:
        output.stats.check_no_fault()


def compile_c(name: str) -> Path:
    """Compiles one of the programs in C for the architecture of the binaries."""
    program = WORK / f"{name}-{OPTIONS.arch}"
    source = HERE / f"c/{name}.c"
    libraries = ["-ldl", "-lm", "-lpthread"]
    process.run([OPTIONS.compiler, *COMPILE, "-o", program, source, *libraries])
    return program
