# SPDX-License-Identifier: MIT OR Apache-2.0
"""Two clients of one llama-server, and two llama-servers beside each other, get what the CPU alone
writes for each prompt. Servers have loaded their model, and so have opened the device, before any
is asked."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier

import pytest

from reference import MODEL, PROMPTS, Reference
from server import Server, text_of

TOKENS = 16
# Requests of each client, one after the other.
ROUNDS = 2


@pytest.fixture
def ask(stock, reference, seen) -> Callable[..., None]:
    """Asks servers of so many slots for one of two texts each, at the same time."""

    def ask(slots: list[int]) -> None:
        texts = [reference(MODEL, prompt, TOKENS) for prompt in list(PROMPTS.values())[:2]]
        ready = Barrier(len(texts))

        def client(server: Server, text: Reference) -> list[bytes]:
            ready.wait()
            return [text_of(server.complete(text.tokens, TOKENS)) for _ in range(ROUNDS)]

        with ExitStack() as running, ThreadPoolExecutor() as clients:
            model = stock.full(MODEL)
            start = lambda count: Server(stock, model, "-np", str(count), ours=True)
            servers = [running.enter_context(start(count)) for count in slots]
            answers = list(clients.map(client, servers * (3 - len(servers)), texts))
            matmuls = [server.stop().stats.offloaded("fp16") for server in servers]
        judged = [text.judge(each) for text, of in zip(texts, answers) for each in of]
        seen(f"{matmuls} matmuls in FP16; {', '.join(judged)}")

    return ask


def test_server_two_clients(ask):
    ask([2])


def test_two_processes(ask):
    ask([1, 1])
