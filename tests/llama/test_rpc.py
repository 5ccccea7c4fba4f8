# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models on boards with ggml's own RPC: stock clients, stock servers that compute on their NPU, each
in a network namespace of its own."""

import statistics
import subprocess
import time

import pytest

import logits
from boards import Board, Network
from gguf_tiny import LAYERS, OF_PROMPT
from options import WORK
from reference import MODEL, PROMPT, PROMPTS, completion
from stats import Stats
from stock import FALLBACK

TOKENS = 16
# Mean KL divergence of F16 weights, whose sums have another order.
NEAR = 1e-5
# How long a client may go on when its server is gone.
END_LIMIT = 30


@pytest.fixture
def network(stock):
    with Network(stock) as network:
        yield network


def through(*boards: Board) -> list[str]:
    """What makes a client put all layers on boards."""
    return ["--rpc", ",".join(board.address for board in boards), "-ngl", "99"]


def runs_of(matmuls: int) -> int:
    """How often a client ran whose servers computed so many matmuls: again where it lost the end of
    its text (`Reference.run`)."""
    runs, rest = divmod(matmuls, OF_PROMPT)
    assert runs and rest == 0, matmuls
    return runs


def write(network, text, *options, ours=False):
    """Has a client write `text`: how far it is the CPU's, and the run."""
    text.stock = network.stock
    output = text.run(*options, ours=ours)
    return text.judge(output.generated), output


@pytest.mark.on_request
def test_rpc(network, reference, seen):
    """One server: the CPU's text, with matmuls and attention of the prompt on the server's NPU, and
    nothing of single tokens. Another client follows."""
    board = network.board()
    verdicts = []
    for model, prompt in list(PROMPTS.items())[:2]:
        before = board.computed
        verdict, _ = write(network, reference(model, prompt, TOKENS), *through(board))
        verdicts.append(verdict)
        computed = board.computed - before
        assert computed["attention"] == LAYERS * runs_of(computed["matmul"]), board.said
        assert not computed["failed matmul"], board.said
    assert board.process.poll() is None and board.weights[-1] == OF_PROMPT, board.said
    board.check_weights_kept()
    seen(", ".join(verdicts))


def test_rpc_two_boards(network, reference, seen):
    """Two servers share the layers. One finds the backend as the package installs it."""
    table = WORK / "board-stats.txt"
    table.unlink(missing_ok=True)
    env = {"GGML_ROCKET_STATS": str(table)}
    boards = [network.board(env=env), network.board(is_packaged=True)]
    verdict, _ = write(network, reference(MODEL, PROMPT, TOKENS), *through(*boards))
    matmuls = [board.computed["matmul"] for board in boards]
    assert runs_of(sum(matmuls)) and all(matmuls), (matmuls, boards[0].said)
    for board in boards:
        board.check_weights_kept()
    # The file is renewed once a second, also after the last graph.
    end = time.monotonic() + END_LIMIT
    while Stats(table.read_text()).matmuls != matmuls[0]:
        assert time.monotonic() < end, table.read_text()
        time.sleep(0.1)
    boards[0].kill()
    assert [file.name for file in WORK.glob(f"{table.name}*")] == [table.name]
    seen(f"{verdict}, matmuls: {matmuls}")


@pytest.mark.on_request
def test_rpc_and_local(network, stock, reference, seen):
    """The client's NPU computes the layers that are not on the board."""
    board = network.board()
    options = ["--rpc", board.address, "-ngl", "2"]
    verdict, output = write(network, reference(MODEL, PROMPT, TOKENS), *options, ours=True)
    here, there = output.stats.matmuls, board.computed["matmul"]
    runs, rest = divmod(there, OF_PROMPT - here)
    assert here and runs and rest == 0, (here, there)
    seen(f"{verdict}, matmuls here and there: {here}, {there // runs}")


@pytest.mark.on_request
@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("model", ["plain", "experts"])
def test_rpc_divergence(model, kind, network, stock, seen):
    """A server changes as little as the NPU of this machine does."""
    board = network.board()
    file = stock.quantised(model, kind)
    options = through(board)
    far = logits.measure(network.stock, file, ours=False, options=options).logits
    near = logits.with_backend(stock, file)
    cpu = logits.on_cpu(stock, file)
    lost, local = logits.divergence(cpu, far), logits.divergence(cpu, near.logits)
    computed = board.computed
    assert computed["matmul"] and not computed["failed matmul"], board.said
    board.check_weights_kept()
    assert lost <= max(NEAR, 1.5 * local), (lost, local)
    seen(f"mean KL divergence {lost:.6f}, {local:.6f} without a network; {computed['matmul']}")


def test_rpc_not_asked_for(network, seen):
    """Without GGML_ROCKET_SERVE the server ends with a line that names it, before any client."""
    board = network.board(serves=False)
    assert board.process.wait(END_LIMIT) == 0 or board.process.returncode == 1, board.said
    [said] = [line for line in board.said.splitlines() if "GGML_ROCKET_SERVE=1" in line]
    assert "GGML_ASSERT" not in board.said, board.said
    seen(said)


# A prompt of some thousand tokens, in batches of 64.
LONG = "Once upon a time there was a chip. " * 45
SLOWLY = ["-c", "2048", "-b", "64", "-ub", "64"]


def start(network, model, *boards):
    """Starts a client with a long prompt; returns when the first board computes it."""
    words = [*network.stock.command("llama-completion"), "-m", str(model), "-t", "1"]
    words += [*completion(LONG, 4), *SLOWLY, *through(*boards)]
    how = dict(cwd=network.stock.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    # Its debugger would write to its standard output.
    env = network.stock.environment(ours=False, added={"GGML_NO_BACKTRACE": "1"})
    client = subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL, **how)
    while not boards[0].computed["matmul"]:
        assert client.poll() is None, "the client ended before its prompt"
        time.sleep(0.02)
    return client


@pytest.mark.on_request
@pytest.mark.parametrize("hangs", [False, True], ids=["killed", "hung"])
def test_rpc_server_lost(hangs, network, stock, reference, seen):
    """The client of a server that is killed in the middle of a prompt ends with an error. One that
    hangs it waits for; killing the hung server, as a watchdog would, ends it. The server that is
    started again serves the next client."""
    board = network.board()
    with start(network, stock.full(MODEL), board) as client:
        if hangs:
            board.pause()
            with pytest.raises(subprocess.TimeoutExpired):
                client.wait(5)
        board.kill()
        began = time.monotonic()
        text, _ = client.communicate(timeout=END_LIMIT)
        assert client.returncode != 0 and not text.strip(), (client.returncode, text)
        took = time.monotonic() - began
    board.start()
    verdict, _ = write(network, reference(MODEL, PROMPT, TOKENS), *through(board))
    seen(f"the client ended with {client.returncode} within {took:.1f} s; then {verdict}")


# Some jobs of a prompt of 460 tokens take longer than the driver allows: as in test_failures.py, with
# a quarter of the rows.
KILLED = {"GGML_ROCKET_DEVICE": "model:clock=1,cores=1,job-limit=50", FALLBACK: "1"}


@pytest.mark.on_request
def test_rpc_killed_job(network, stock, reference, seen):
    """What the NPU fails to compute the board's CPU computes, with one message: a server cannot tell
    its client that a graph failed, and would end."""
    board = network.board(env=KILLED | {"GGML_ROCKET_ATTENTION": "0"})
    prompt = "Once upon a time there was a chip. " * 20
    options = ["-c", "2048", *through(board)]
    verdict, _ = write(network, reference("tiny-1", prompt, 4), *options)
    [*said] = [line for line in board.said.splitlines() if "The CPU computes it" in line]
    assert len(said) == 1 and board.process.poll() is None, board.said
    seen(f"{verdict}; {said[0]}")


# Rounds, and tokens of each that are counted.
ROUNDS, COUNTED = 5, 64


@pytest.mark.on_request
def test_rpc_token_cost(network, stock, seen):
    """Measures a server's CPU time a token beside that of one without our backend: medians of runs
    that take turns, of a model of 113 million weights. It asserts no time."""
    boards = {
        "NPU": network.board(env={"GGML_ROCKET_TRACE": ""}),
        "CPU": network.board(device="CPU"),
    }
    model = stock.quantised("benchmark", "Q8_0")
    times = {name: [] for name in boards}

    def seconds(board, tokens):
        before = board.user_seconds
        words = [*completion("Once", tokens), *through(board)]
        network.stock.run("llama-completion", *words, model=model, ours=False)
        return board.user_seconds - before

    for _ in range(ROUNDS):
        for name, board in boards.items():
            start = seconds(board, 1)
            times[name].append((seconds(board, 1 + COUNTED) - start) / COUNTED * 1e3)
    medians = {name: statistics.median(of_name) for name, of_name in times.items()}
    seen(
        ", ".join(f"{name} server {ms:.2f} ms of user time a token" for name, ms in medians.items())
    )
