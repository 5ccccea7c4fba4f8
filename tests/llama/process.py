# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs programs, with a limit on their time."""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stats import TITLE, Stats

# Some programs write their log and their text in a thread and may exit first: the end is lost now
# and then, with status 0, on a busy machine often. So often they are run at most.
ATTEMPTS = 20


@dataclass
class Output:
    """How a program ended, and what it wrote."""

    name: str
    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")

    @property
    def generated(self) -> bytes:
        """The text of llama-completion, without the newlines that it adds. The models write none
        themselves."""
        return self.stdout.rstrip(b"\n")

    @property
    def has_stats(self) -> bool:
        return TITLE in self.stderr

    @property
    def stats(self) -> Stats:
        return Stats(self.stderr)

    def checked(self) -> "Output":
        tail = " | ".join(line.strip() for line in self.stderr.splitlines()[-4:])
        assert self.status == 0, f"{self.name} ended with {self.status}: {tail}"
        return self

    def lines(self, *parts: str) -> list[str]:
        """Lines of the log with all of `parts`, from the first of them on."""
        found = [line for line in self.stderr.splitlines() if all(part in line for part in parts)]
        return [line[line.index(parts[0]) :] for line in found]


def run(
    command: Sequence[str | Path],
    name: str = "",
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limit: float = 120,
    check: bool = True,
) -> Output:
    """Runs a program to its end. It must succeed if `check`."""
    streams = dict(stdin=subprocess.DEVNULL, capture_output=True)
    done = subprocess.run([*map(str, command)], env=env, cwd=cwd, timeout=limit, **streams)
    name = name or Path(command[0]).name
    output = Output(name, done.returncode, done.stdout, done.stderr.decode(errors="replace"))
    return output.checked() if check else output


def until(attempt: Callable[[], Output], is_whole: Callable[[Output], bool]) -> Output:
    """Repeats a run until nothing shows that its end was lost."""
    for _ in range(ATTEMPTS):
        output = attempt()
        if is_whole(output):
            return output
    raise AssertionError(f"{output.name} lost its end in each of {ATTEMPTS} runs: {output.stderr}")


def environment(added: Mapping[str, str]) -> dict[str, str]:
    """This process's, without what may reach one side of a comparison only, and `added`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GGML_", "LLAMA_"))}
    return kept | dict(added)
