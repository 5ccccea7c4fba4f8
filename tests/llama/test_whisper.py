# SPDX-License-Identifier: MIT OR Apache-2.0
"""Debian's libwhisper hears and predicts with the backend as without."""

from pathlib import Path

import numpy as np
import pytest

import ggml_whisper
import process
from options import OPTIONS, THREADS, WORK, External
from stock import Stock, compile_c

# Normalised mean square error of the logits. Weights are F16, so that only sums differ: 9.4e-8 were
# seen on x86-64, and 1.3e-6 on arm64. INT8 would lose some 1e-4 in each product.
NMSE = 1e-5
# In a layer of the encoder and of the decoder, with the keys and values of the sound between them;
# and the output.
PRODUCTS = (6 + 2 + 8) * ggml_whisper.LAYERS + 1


@pytest.mark.on_request
def test_whisper(stock, seen):
    packages = Path(OPTIONS.whisper_packages or "none")
    libraries = list(packages.glob(f"usr/lib/{OPTIONS.triplet}/libwhisper.so.1"))
    if not libraries:
        raise External("there is no package of libwhisper, or it has changed")
    model = WORK / "whisper-f16.bin"
    if not model.exists():
        ggml_whisper.write(made := model.with_suffix(".new"))
        made.rename(model)
    cpu, _ = logits(stock, libraries[0], model, ours=False)
    ours, stats = logits(stock, libraries[0], model, ours=True)
    assert np.isfinite(cpu).all() and cpu.std() > 0.1
    error = np.mean((ours - cpu) ** 2) / cpu.var()
    assert error < NMSE and ours.argmax() == cpu.argmax(), f"NMSE {error}"
    assert stats.offloaded("fp16") == PRODUCTS
    seen(f"{PRODUCTS} products, NMSE {error:.1e}")


def logits(stock: Stock, library: Path, model: Path, ours: bool):
    """What it predicts, and the statistics with our backend."""
    # Apart from what came with it: one ggml for all.
    place = WORK / f"whisper-{OPTIONS.arch}"
    place.mkdir(exist_ok=True)
    link, file = place / library.name, place / "logits"
    link.unlink(missing_ok=True)
    link.symlink_to(library.resolve())
    words = [*stock.program(compile_c("whisper_logits"), place), model, THREADS, file]
    env = stock.environment(ours)

    def attempt() -> process.Output:
        return process.run(words, "whisper_logits", env=env, cwd=stock.root, limit=600)

    output = process.until(attempt, lambda output: output.has_stats or not ours)
    return np.fromfile(file, np.float32), output.stats if ours else None
