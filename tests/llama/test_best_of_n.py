# SPDX-License-Identifier: MIT OR Apache-2.0
"""examples/best-of-n with a model that adds digits: more answers to a question, more right ones."""

import sys

import pytest

import gguf_sums
import page
from options import ROOT
from server import Server

sys.path.append(str(ROOT / "examples/best-of-n"))
import sums  # noqa: E402
from best_of_n import Answer, Client, beam, last_match, vote  # noqa: E402

MOST = 32
COUNTS = [1, 2, 4, 8, 16, 32]
# Questions of the accuracy, and of the run on the NPU.
QUESTIONS, FEW = 60, 2
FEW_ANSWERS = 4
# Beginnings that a beam search keeps, for so many steps that it samples at a time.
WIDTH = {n: max(1, n // 4) for n in COUNTS}
RESULT = last_match(r"\d+")
MIN_M = {"GGML_ROCKET_MIN_M": str(FEW_ANSWERS)}


def client(server: Server) -> Client:
    return Client(f"http://127.0.0.1:{server.port}", tokens=16, end=gguf_sums.END)


def start(stock, slots: int, **how) -> Server:
    # Threads wait for each other in loops, which a model this small does not pay for.
    words = ["-np", str(slots), "-c", str(64 * slots), "-t", "1"]
    return Server(stock, stock.full("sums"), *words, **how)


def is_right(question: str, result: str | None) -> bool:
    return result == gguf_sums.result(question)


def search(server: Server, question: str, n: int) -> Answer:
    score = lambda answer: sums.score(question, answer.text)
    return beam(client(server), question, score, n, WIDTH[n], gguf_sums.STEP)


@pytest.mark.check("helpers")
def test_votes_and_beams_choose():
    texts = ["13,22", "14,23", "12,22", "nothing"]
    answers = [Answer(text, ended=True) for text in texts]
    assert vote(answers, RESULT) == "22" and vote(answers[3:], RESULT) is None
    assert [sums.score("7+6+9=", text) for text in texts] == [1.0, 0.0, 0.0, 0.0]
    assert sums.score("7+6+9=", "13,") == 0.5 and sums.score("7+6+9=", "13,22,22") == 0.0
    assert gguf_sums.result("7+6+9+4+8=") == gguf_sums.answer(76948)[-3:-1] == "34"

    class Writer:
        """Writes each step right once, and all others wrong."""

        def sample(self, prompt: str, begun: list[Answer], step: str) -> list[Answer]:
            right = {"": "13" + step, "13" + step: "22"}
            grown = [right.get(answer.text, "00") for answer in begun[:1]]
            grown += ["99" + step for _ in begun[1:]]
            return [
                Answer(answer.text + text, tokens=1, ended=not text.endswith(step))
                for answer, text in zip(begun, grown)
            ]

    score = lambda answer: sums.score("7+6+9=", answer.text)
    assert beam(Writer(), "7+6+9=", score, 4, 1, ",").text == "13,22"


@pytest.mark.on_request
def test_best_of_n(stock, seen):
    """Answers that are sampled together are the NPU's work; the methods choose among them. A beam
    search whose every step was checked has a right answer if it has ended at all."""
    found = []
    with start(stock, FEW_ANSWERS, ours=True, env=MIN_M) as server:
        for number in gguf_sums.questions(FEW):
            question = gguf_sums.question(number)
            answers = client(server).sample(question, [Answer()] * FEW_ANSWERS)
            best = search(server, question, FEW_ANSWERS)
            score = sums.score(question, best.text)
            assert score < 1 or is_right(question, RESULT(best.text)), best
            found.append(f"{question} {vote(answers, RESULT)} by vote, {best.text} by steps")
        stats = server.stop().stats
    # A prompt has more rows than that; and there were others.
    assert stats.offloaded("fp16") > FEW * FEW_ANSWERS, stats.text
    seen(f"{stats.matmuls} matmuls; {'; '.join(found)}")


def groups(answers: list[Answer], n: int) -> list[list[Answer]]:
    return [answers[at : at + n] for at in range(0, len(answers), n)]


def right_share(question: str, answers: list[Answer], n: int) -> dict[str, float]:
    """How often each method is right that chooses among `n` of the answers."""
    chosen = {"vote": 0, "probability": 0, "checker": 0}
    parts = groups(answers, n)
    for part in parts:
        results = [RESULT(answer.text) for answer in part]
        chosen["vote"] += is_right(question, vote(part, RESULT))
        likely = max(part, key=lambda answer: answer.confidence)
        chosen["probability"] += is_right(question, RESULT(likely.text))
        chosen["checker"] += any(is_right(question, result) for result in results)
    return {name: count / len(parts) for name, count in chosen.items()}


@pytest.mark.on_request
def test_answers(stock, seen):
    """Accuracy against the number of answers, on the CPU, where so many questions take minutes and
    not hours."""
    names = ["vote", "probability", "checker", "steps"]
    shares = {name: dict.fromkeys(COUNTS, 0.0) for name in names}
    with start(stock, MOST) as server:
        for number in gguf_sums.questions(QUESTIONS):
            question = gguf_sums.question(number)
            answers = client(server).sample(question, [Answer()] * MOST)
            for n in COUNTS:
                for name, share in right_share(question, answers, n).items():
                    shares[name][n] += share / QUESTIONS
                best = search(server, question, n)
                shares["steps"][n] += is_right(question, RESULT(best.text)) / QUESTIONS
    percent = {name: [100 * shares[name][n] for n in COUNTS] for name in names}
    rows = [[n, *(f"{percent[name][at]:.0f} %" for name in names)] for at, n in enumerate(COUNTS)]
    heads = "answers | majority vote | most probable | checker | beam of steps, checker"
    conditions = (
        f"{page.conditions(stock)} {QUESTIONS} questions, temperature 1, seeds 1 to {MOST}; the "
        f"answers of a row are groups of the same {MOST}."
    )
    page.show(conditions, page.table(heads, rows))
    # Of one answer there is nothing to choose; and one of more is right if one of fewer is.
    assert len({percent[name][0] for name in names[:3]}) == 1
    checked = percent["checker"]
    assert all(low <= high + 1e-9 for low, high in zip(checked, checked[1:])), checked
    seen(str(rows))
