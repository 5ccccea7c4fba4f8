# SPDX-License-Identifier: MIT OR Apache-2.0
"""The stock llama-server as a source of texts and logits."""

import json
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from options import THREADS
from process import Output
from stock import Stock, check_no_fault

START_LIMIT, ANSWER_LIMIT, STOP_LIMIT = 300, 300, 60
# How often it is started on another port if it ends at once: another program may have taken it.
STARTS = 3
# Candidates asked for at each step.
CANDIDATES = 8


@dataclass(frozen=True)
class Candidate:
    """A token that might have been written."""

    id: int
    text: bytes
    gap: float  # how far its logit lies below the best one


# A step of a text: candidates, of which the first was written.
Step = list[Candidate]


def read_step(choice: dict[str, Any]) -> Step:
    best = choice["top_logprobs"][0]["logprob"]
    step = [
        Candidate(c["id"], bytes(c["bytes"]), best - c["logprob"]) for c in choice["top_logprobs"]
    ]
    assert len(step) >= 2, "a step with fewer than two candidates"
    # Of exactly equal candidates the one that was written is first.
    return sorted(step, key=lambda candidate: candidate.id != choice["id"])


def text_of(steps: list[Step]) -> bytes:
    return b"".join(step[0].text for step in steps)


class Server:
    """A running server; stopped at the end of a `with`. By default for one request at a time, and
    without our backend."""

    NAME = "llama-server"

    def __init__(
        self,
        stock: Stock,
        model: Path,
        *options: str,
        ours: bool = False,
        env: Mapping[str, str] = {},
    ):
        self.env = env
        words = [*self._command(stock, model), *options]
        # Nothing of the machine's proxies.
        self.http = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for left in reversed(range(STARTS)):
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
            self.log = tempfile.TemporaryFile()
            self.process = subprocess.Popen(
                [*words, "--port", str(self.port)],
                env=stock.environment(ours, env),
                cwd=stock.root,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.log,
            )
            try:
                if self._answers():
                    return
            except BaseException:
                self.__exit__()
                raise
            assert left, f"{self.NAME} ended while starting: {self._output().stderr}"

    def _command(self, stock: Stock, model: Path) -> list[str]:
        words = [*stock.command(self.NAME), "-m", str(model), "--host", "127.0.0.1"]
        return [*words, "-t", THREADS, "-np", "1"]

    def _answers(self) -> bool:
        """Waits until it answers; false if it ends."""
        end = time.monotonic() + START_LIMIT
        while self.process.poll() is None:
            try:
                self.ask("/health")
                return True
            except (URLError, OSError):
                assert time.monotonic() < end, f"{self.NAME} says nothing for {START_LIMIT} s"
                time.sleep(0.05)
        return False

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> Output:
        """Asks it to stop, and waits until it has."""
        self.process.terminate()
        self.process.wait(STOP_LIMIT)
        output = self._output().checked()
        check_no_fault(output, self.env)
        return output

    def _output(self) -> Output:
        self.log.seek(0)
        log = self.log.read().decode(errors="replace")
        return Output(self.NAME, self.process.returncode, b"", log)

    def ask(self, path: str, **body: object) -> dict[str, Any]:
        return self.post(path, json.dumps(body).encode() if body else None)

    def post(self, path: str, data: bytes | None, kind: str = "application/json") -> dict[str, Any]:
        """Sends data of a kind; without any it asks."""
        url, kinds = f"http://127.0.0.1:{self.port}{path}", {"Content-Type": kind}
        request = urllib.request.Request(url, data, kinds)
        with self.http.open(request, timeout=ANSWER_LIMIT) as answer:
            return json.load(answer)

    def tokenize(self, prompt: str) -> list[int]:
        """The tokens of a prompt, as llama-completion makes them."""
        return self.ask("/tokenize", content=prompt, add_special=True)["tokens"]

    def _greedy(self, prompt: list, count: int, **more: object) -> Any:
        """The answer to a request for `count` tokens after a prompt, or after each of a list."""
        how = dict(n_predict=count, temperature=0, ignore_eos=True)
        return self.ask("/completion", prompt=prompt, **how, **more)

    def complete(self, tokens: list[int], count: int, cached: bool = False) -> list[Step]:
        """What is written after `tokens`: `count` steps, greedily; from scratch, as
        llama-completion computes it, or with the keys that are `cached`, of which it counts those
        that were `reused`."""
        answer = self._greedy(tokens, count, n_probs=CANDIDATES, cache_prompt=cached)
        self.reused = int(answer["timings"]["cache_n"])
        steps = [read_step(choice) for choice in answer["completion_probabilities"]]
        assert len(steps) == count, f"llama-server wrote {len(steps)} tokens, not {count}"
        return steps

    def write(self, *prompts: list[int], count: int) -> list[bytes]:
        """The texts of so many tokens after each of `prompts`, which are begun together. The drafts of
        the first are counted."""
        answers = self._greedy(list(prompts), count, cache_prompt=False)
        # One prompt has one answer, without a list around it.
        answers = answers if isinstance(answers, list) else [answers]
        timings = answers[0]["timings"]
        self.drafted = int(timings.get("draft_n", 0))
        self.accepted = int(timings.get("draft_n_accepted", 0))
        assert len(answers) == len(prompts), f"{len(answers)} answers to {len(prompts)} prompts"
        return [answer["content"].encode() for answer in sorted(answers, key=lambda a: a["index"])]

    def status_of(self, tokens: list[int], count: int) -> int:
        """The HTTP status of a request that is refused."""
        try:
            self.complete(tokens, count)
        except HTTPError as error:
            return error.code
        return 200
