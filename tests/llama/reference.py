# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the CPU alone writes after a prompt, and whether a text is that.

Greedy decoding turns logits into text, and two logits that are nearly equal can change places
through a rounding. So a differing token is accepted where the CPU's own logits of the two tokens
are less than TIE_NATS apart, and the rest of the text must then be what the CPU writes after that
token. Texts carry no logits, so the stock llama-server, without our backend, is asked: it takes
tokens as its prompt and gives the log probabilities of the best candidates at each step, whose
differences are those of the logits.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from process import Output
from server import Server, Step, text_of
from stock import Stock

# Logits nearer to each other than this may change places, and so many of them in one text.
TIE_NATS = 1e-3
MOST_TIES = 4

# Prompts long enough to be offloaded, each with a model of its own seed. Of sixty seeds these were
# chosen because in their texts the best token leads the second by more than 0.017 at each step, on
# an x86-64 CPU: some ten times the rounding noise of these models' logits. A difference is then
# more than noise on other CPUs too, whose kernels sum in another order.
PROMPTS = {
    "tiny-49": "The quick brown fox jumps over the lazy dog, and then it thinks about the reason "
    "for doing so again and again.",
    "tiny-54": "In the beginning there was a matrix, and it was multiplied by another one; the "
    "product was good, but it took rather long.",
    "tiny-15": "0 1 1 2 3 5 8 13 21 34 55 89 144: each number is the sum of the two before it. "
    "Question: what comes next? Answer:",
}
# The first of them, for checks that take one. The prompt has more than 32 tokens.
MODEL, PROMPT = next(iter(PROMPTS.items()))

# Writes so many steps after some tokens that follow the prompt.
Continue = Callable[[list[int], int], list[Step]]


def explain(
    cpu: Continue, text: bytes, count: int, prefix: list[int] = [], left: int = MOST_TIES
) -> list[float] | None:
    """Explains `text`, of `count` tokens, by what the CPU writes: the gaps of the ties that it
    takes, none if the texts are the same; `None` if ties do not explain it."""
    steps = cpu(prefix, count) if count else []
    # How far the CPU's own choices go along with the text.
    rests = [text]
    for step in steps:
        if not rests[-1].startswith(step[0].text):
            break
        rests.append(rests[-1].removeprefix(step[0].text))
    if len(rests) > len(steps) and not rests[-1]:
        return []
    if not left:
        return None
    # A tie may have been taken before the texts part, where one token's text begins with
    # another's: latest first.
    for index in reversed(range(min(len(rests), len(steps)))):
        for candidate in steps[index][1:]:
            if candidate.gap >= TIE_NATS or not rests[index].startswith(candidate.text):
                continue
            taken = [*prefix, *(step[0].id for step in steps[:index]), candidate.id]
            rest = rests[index].removeprefix(candidate.text)
            gaps = explain(cpu, rest, count - index - 1, taken, left - 1)
            if gaps is not None:
                return [candidate.gap, *gaps]
    return None


def judge(cpu: Continue, text: bytes, count: int) -> str:
    """Says how far `text`, of `count` tokens, is what the CPU writes; fails if it is not."""
    ties = explain(cpu, text, count)
    wrote = lambda: text_of(cpu([], count))
    assert ties is not None, f"not by ties: the CPU wrote {wrote()!r}, here is {text!r}"
    gaps = ", ".join(f"{gap:.6f}" for gap in ties)
    return f"same text but for ties of {gaps}" if ties else "same text"


def completion(prompt: str, count: int) -> list[str]:
    """What llama-completion is told, but for the model and threads."""
    words = ["-p", prompt, "-n", str(count), "--temp", "0", "--ignore-eos", "-no-cnv"]
    return [*words, "--no-display-prompt"]


class Reference(Server):
    """What the CPU writes after one prompt with one model."""

    def __init__(self, stock: Stock, model: Path, prompt: str, count: int):
        super().__init__(stock, model)
        self.stock, self.count = stock, count
        self.model, self.words = model, completion(prompt, count)
        self.tokens = self.tokenize(prompt)
        self.steps = super().complete(self.tokens, count)
        self.text = text_of(self.steps)

    def judge(self, text: bytes) -> str:
        """Says how far `text` is what the CPU writes; fails if it is not."""
        cpu = lambda prefix, count: super(Reference, self).complete(self.tokens + prefix, count)
        return judge(cpu, text, self.count)

    def run(self, *options: str, log: str = "", **how: Any) -> Output:
        """Has llama-completion write as many tokens after the prompt, again where it lost the end
        of its text, or `log`; see `Stock.run`."""

        def whole(output: Output) -> bool:
            # The CPU's text is known in full, so a lost tail shows. Any other text is the result.
            text = output.generated
            cut = text != self.text and self.text.startswith(text)
            return output.status != 0 or not cut and log in output.stderr

        how |= dict(model=self.model, whole=whole)
        return self.stock.run("llama-completion", *self.words, *options, **how)
