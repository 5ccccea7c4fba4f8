# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `cargo xtask llama` hands over: its options, and what it built and fetched."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

# The CPU's share of a computation depends on how many threads divide it, so that both sides of
# each comparison use the same number.
THREADS = "2"

# See `checks` in xtask/src/llama.rs.
OPTIONS = SimpleNamespace(**json.loads(os.environ["ROCKET_LLAMA"]))
# A directory for what is made and fetched.
WORK = Path(OPTIONS.target) / "llama"


class External(Exception):
    """What the outside world took away: a package, the network."""


def skip_without(*programs: str) -> None:
    """Skips a test that needs a program which this machine does not have."""
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"needs the program {program}, which this machine does not have")
