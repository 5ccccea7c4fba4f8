# SPDX-License-Identifier: MIT OR Apache-2.0
"""Debian's libwhisper hears and predicts with the backend as without."""

from pathlib import Path

import numpy as np
import pytest

import ggml_whisper
import process
from options import OPTIONS, THREADS, WORK, External
from stock import compile_c

# Normalised mean square error of the logits. Weights are F16, so that only sums differ: 9.4e-8 were
# seen on x86-64, and 1.3e-6 on arm64. INT8 would lose some 1e-4 in each product
# (docs/quantisation.md).
NMSE = 1e-5
# In a layer of the encoder and of the decoder, with the keys and values of the sound between them;
# and the output.
PRODUCTS = (6 + 2 + 8) * ggml_whisper.LAYERS + 1

# The encoder's, without a mask, and the decoder's, of its tokens and of the sound.
ATTENTION = 3 * ggml_whisper.LAYERS


@pytest.mark.on_request
def test_whisper(stock, seen):
    packages = Path(OPTIONS.whisper_packages or "none")
    libraries = list(packages.glob(f"usr/lib/{OPTIONS.triplet}/libwhisper.so.1"))
    if not libraries:
        raise External("there is no package of libwhisper, or it has changed")
    place = WORK / f"whisper-{OPTIONS.arch}"
    place.mkdir(exist_ok=True)
    # Apart from what came with it: the ggml is that of `stock`.
    link = place / libraries[0].name
    link.unlink(missing_ok=True)
    link.symlink_to(libraries[0].resolve())
    ggml_whisper.write(model := place / "f16.bin")
    program = stock.program(compile_c("whisper_logits"), place)

    def predict(ours: bool) -> tuple[np.ndarray, process.Output]:
        file = place / ("ours" if ours else "cpu")
        words, env = [*program, model, THREADS, file], stock.environment(ours)
        run = lambda: process.run(words, "whisper_logits", env=env, cwd=stock.root, limit=600)
        output = process.until(run, lambda output: output.has_stats or not ours)
        return np.fromfile(file, np.float32), output

    (cpu, _), (ours, output) = predict(False), predict(True)
    assert np.isfinite(cpu).all() and cpu.std() > 0.1
    error = np.mean((ours - cpu) ** 2) / cpu.var()
    assert error < NMSE and ours.argmax() == cpu.argmax(), f"NMSE {error}"
    assert output.stats.offloaded("fp16") == PRODUCTS
    assert output.stats.attention == ATTENTION
    seen(f"{PRODUCTS} matmuls, {output.stats.attention} nodes of attention, NMSE {error:.1e}")
