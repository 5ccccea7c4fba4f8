#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Ask a llama-server for several answers to one question, and choose one of them.

The server decodes the answers together, as many as it has slots (llama-server -np).
Needs nothing but Python.
"""

import argparse
import json
import re
import runpy
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, cycle, islice
from urllib.error import HTTPError, URLError

ANSWER_LIMIT = 3600  # seconds

# Rates a question and a text, which may be an unfinished answer: more is better.
Scorer = Callable[[str, str], float]


@dataclass(frozen=True)
class Answer:
    """An answer, or its first steps."""

    text: str = ""
    logprob: float = 0.0  # the sum over its tokens
    tokens: int = 0
    ended: bool = False

    @property
    def confidence(self) -> float:
        """The mean log probability of a token: how sure the model was of it."""
        return self.logprob / max(1, self.tokens)


class Client:
    """A llama-server, and how to sample from it."""

    def __init__(
        self, url: str, temperature: float = 1.0, tokens: int = 512, seed: int = 1, end: str = ""
    ):
        self.url, self.temperature, self.tokens = url.rstrip("/"), temperature, tokens
        self.seeds, self.end = count(seed), end
        # Not through a proxy: the server is near.
        self.http = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def post(self, path: str, **body: object) -> dict:
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), kind)
        with self.http.open(request, timeout=ANSWER_LIMIT) as answer:
            return json.load(answer)

    def chat_prompt(self, question: str) -> str:
        """The question as the model's chat template has it."""
        message = {"role": "user", "content": question}
        return self.post("/apply-template", messages=[message])["prompt"]

    def sample(self, prompt: str, begun: list[Answer], step: str = "") -> list[Answer]:
        """Continues answers, all at the same time, to their ends or to the end of a `step`."""

        def one(answer: Answer, seed: int) -> Answer:
            got = self.post(
                "/completion",
                prompt=prompt + answer.text,
                n_predict=self.tokens - answer.tokens,
                temperature=self.temperature,
                seed=seed,
                # Of the model's own distribution.
                top_k=0,
                top_p=1.0,
                min_p=0.0,
                n_probs=1,
                stop=[text for text in (step, self.end) if text],
            )
            written = got.get("completion_probabilities", [])
            is_step = got["stop_type"] == "word" and got["stopping_word"] == step
            tokens = answer.tokens + got["tokens_predicted"]
            return Answer(
                answer.text + got["content"] + (step if is_step else ""),
                answer.logprob + sum(token["logprob"] for token in written),
                tokens,
                not is_step or tokens >= self.tokens,
            )

        seeds = list(islice(self.seeds, len(begun)))
        with ThreadPoolExecutor(len(begun)) as requests:
            return list(requests.map(one, begun, seeds))


def vote(answers: list[Answer], result: Callable[[str], str | None]) -> str | None:
    """The result that most answers have; of equals the one that came first."""
    results = [found for answer in answers if (found := result(answer.text)) is not None]
    return Counter(results).most_common(1)[0][0] if results else None


def beam(
    client: Client, prompt: str, score: Callable[[Answer], float], n: int, width: int, step: str
) -> Answer:
    """Step-level beam search: samples `n` next steps, keeps the `width` best beginnings, and goes on
    from each of them, until all have ended."""
    beams = [Answer()]
    while unfinished := [answer for answer in beams if not answer.ended]:
        grown = client.sample(prompt, list(islice(cycle(unfinished), n)), step)
        # Equal ones would only take room.
        different = {answer.text: answer for answer in [*beams, *grown] if answer not in unfinished}
        beams = sorted(different.values(), key=score, reverse=True)[:width]
    return beams[0]


def last_match(pattern: str) -> Callable[[str], str | None]:
    """Finds the result in an answer's text: what the pattern matches last."""
    compiled = re.compile(pattern)
    return lambda text: ([None] + [match[0] for match in compiled.finditer(text)])[-1]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("question")
    add("--url", default="http://127.0.0.1:8080", help="the llama-server [%(default)s]")
    add("-n", type=int, default=16, help="answers, or steps at a time [%(default)s]")
    add("--method", choices=["vote", "score", "beam"], default="vote")
    add("--scorer", help="a Python file with score(question, text) [the model's own probability]")
    add("--width", type=int, default=4, help="beginnings that a beam search keeps [%(default)s]")
    add("--step", default="\n\n", help="text that ends a step of a beam search [an empty line]")
    add("--end", default="", help="text that ends an answer [only the model's own end]")
    add("--result", default=r"-?\d+(?:\.\d+)?", help="the last match is the result [a number]")
    add("--chat", action="store_true", help="use the chat template of the model")
    add("--temperature", type=float, default=0.8, help="[%(default)s]")
    add("--tokens", type=int, default=512, help="most tokens of an answer [%(default)s]")
    add("--seed", type=int, default=1, help="the first of the answers' seeds [%(default)s]")
    options = parser.parse_args()
    if min(options.n, options.width) < 1:
        parser.error("-n and --width must be at least 1")
    return options


def main() -> None:
    options = arguments()
    client = Client(options.url, options.temperature, options.tokens, options.seed, options.end)
    scorer: Scorer | None = runpy.run_path(options.scorer)["score"] if options.scorer else None
    result = last_match(options.result)

    def score(answer: Answer) -> float:
        return scorer(options.question, answer.text) if scorer else answer.confidence

    question = options.question
    prompt = client.chat_prompt(question) if options.chat else question
    if options.method == "beam":
        chosen = beam(client, prompt, score, options.n, options.width, options.step)
        print(f"{chosen.text}\n\nresult: {result(chosen.text)}, score {score(chosen):.3f}")
        return
    answers = client.sample(prompt, [Answer()] * options.n)
    for found, many in Counter(result(answer.text) for answer in answers).most_common():
        print(f"{many:4} of {len(answers)}: {found}")
    if options.method == "vote":
        print(f"result: {vote(answers, result)}")
    else:
        chosen = max(answers, key=score)
        print(f"{chosen.text}\n\nresult: {result(chosen.text)}, score {score(chosen):.3f}")


if __name__ == "__main__":
    try:
        main()
    except HTTPError as error:
        reason = error.read().decode(errors="replace")
        sys.exit(f"the server refused a request: {error.code}, {reason}")
    except (URLError, OSError) as error:
        sys.exit(f"no answer from the server: {error}; is llama-server running, at that --url?")
