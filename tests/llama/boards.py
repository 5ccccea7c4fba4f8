# SPDX-License-Identifier: MIT OR Apache-2.0
"""Machines with a network between them, on this one: a client and boards, each in a network
namespace of its own, and ggml's stock RPC server on the boards."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from options import THREADS, WORK, skip_without
from stats import UNSEEN
from stock import Stock

PORT = 50052
START_LIMIT = 120
# States of sockets in /proc/net/tcp.
LISTENING = "0A"
SLEEP = ["sleep", "infinity"]
# Weights that a graph writes, which a model has none of.
OVERWRITTEN = "overwrites stay on the CPU from now on"


def entering(pid: int) -> list[str]:
    """What starts a program in the namespaces of a process."""
    return ["nsenter", "--preserve-credentials", "-U", "-n", "-t", str(pid)]


class Network:
    """A client, and the boards that it has links to. Ends with a `with`."""

    def __init__(self, stock: Stock):
        skip_without("unshare", "nsenter", "ip")
        self.running = ExitStack()
        self.client = self._hold(["unshare", "--map-root-user", "--net"])
        if not self.client:
            pytest.skip("this user may make no network namespaces here")
        self.boards = 0
        self.stock = stock.elsewhere(entering(self.client), "rpc")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.running.close()

    def _hold(self, words: list[str]) -> int:
        """Starts a process that does nothing in new namespaces; 0 if it ends."""
        holder = subprocess.Popen([*words, *SLEEP], stderr=subprocess.DEVNULL)
        self.running.callback(holder.wait)
        self.running.callback(holder.kill)
        comm = Path(f"/proc/{holder.pid}/comm")
        while holder.poll() is None:
            if comm.read_text().strip() == SLEEP[0]:
                return holder.pid
            time.sleep(0.01)
        return 0

    def board(self, **options: Any) -> "Board":
        """A server on a board of its own."""
        self.boards += 1
        holder = self._hold([*entering(self.client), "unshare", "--net"])
        assert holder, "no namespace for a board"
        name, network = f"board{self.boards}", f"10.77.{self.boards}"
        for pid, line in [
            (self.client, f"link add {name} type veth peer name net netns {holder}"),
            (self.client, f"address add {network}.1/24 dev {name}"),
            (self.client, f"link set {name} up"),
            (holder, f"address add {network}.2/24 dev net"),
            (holder, "link set net up"),
            (holder, "link set lo up"),
        ]:
            subprocess.run([*entering(pid), "ip", *line.split()], check=True)
        return self.running.enter_context(Board(self.stock, holder, f"{network}.2", **options))


class Board:
    """A running server. Stopped at the end of a `with`."""

    def __init__(
        self,
        stock: Stock,
        holder: int,
        host: str,
        *,
        device: str = "",
        serves: bool = True,
        is_packaged: bool = False,
        env: Mapping[str, str] = {},
    ):
        self.holder, self.address = holder, f"{host}:{PORT}"
        self.stock = stock.elsewhere(entering(holder), is_packaged=is_packaged)
        self.trace = WORK / f"trace-{host}.json"
        self.trace.unlink(missing_ok=True)
        ours = {"GGML_ROCKET_TRACE": str(self.trace), "GGML_ROCKET_SERVE": "1" if serves else ""}
        self.env = self.stock.environment(True, ours | dict(env))
        self.device = device or stock.device_name
        self.start()

    def start(self) -> None:
        words = [*self.stock.command("ggml-rpc-server"), "-H", "0.0.0.0", "-p", str(PORT)]
        words += ["-d", self.device, "-t", THREADS]
        self.log = tempfile.TemporaryFile()
        how = dict(cwd=self.stock.root, stdin=subprocess.DEVNULL)
        self.process = subprocess.Popen(
            words, env=self.env, stdout=self.log, stderr=self.log, **how
        )
        end = time.monotonic() + START_LIMIT
        while self.process.poll() is None and not self._listens():
            assert time.monotonic() < end, f"no server in {START_LIMIT} s: {self.said}"
            time.sleep(0.05)

    def _listens(self) -> bool:
        sockets = Path(f"/proc/{self.holder}/net/tcp").read_text().splitlines()[1:]
        words = [line.split() for line in sockets]
        return any(w[3] == LISTENING and w[1].endswith(f":{PORT:04X}") for w in words)

    @property
    def said(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    @property
    def computed(self) -> Counter[str]:
        """How many of what its device computed, by the trace, which is whole after each graph; of
        nothing while it is being written."""
        try:
            events = json.loads(self.trace.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            events = []
        return Counter(event.get("cat", "") for event in events if event.get("ph") == "X")

    def check_weights_kept(self) -> None:
        """It took no results of its client's graphs for weights, and watches all buffers."""
        for line in [OVERWRITTEN, UNSEEN]:
            assert line not in self.said, self.said

    @property
    def weights(self) -> list[int]:
        """How many tensors it decided to have on its NPU, by the log, each time that it did."""
        return [int(n) for n in re.findall(r"weights for the NPU: (\d+) tensors", self.said)]

    @property
    def user_seconds(self) -> float:
        """CPU time that the server took so far, without the kernel's."""
        _, _, fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")
        return int(fields.split()[11]) / os.sysconf("SC_CLK_TCK")

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
