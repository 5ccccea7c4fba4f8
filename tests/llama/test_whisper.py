# SPDX-License-Identifier: MIT OR Apache-2.0
"""Debian's whisper.cpp hears with the backend what it hears without: libwhisper with random weights
and with trained ones (tiny.en) in files of several types, whisper-cli and whisper-server."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest

import ggml_whisper
import ggml_whisper_trained
from stock import Stock
from whisper import Whisper, WhisperServer

# Normalised mean square error of the logits. Weights are F16, so that only sums differ: 9.4e-8 were
# seen on x86-64, and 1.3e-6 on arm64. INT8 would lose some 1e-4 in each matmul
# (docs/quality.md).
NMSE = 1e-5
# Of a quantised file the NPU may lose against F16 so many times what the CPU loses: 1.34 and 2.15
# times were seen with Q8_0, on processors whose own kernels differ, and 1.01 with Q4_0. INT8 adds
# about 3e-4, as much as the CPU loses with Q8_0.
LOSS = 3
# In a layer of the encoder and of the decoder, with the keys and values of the sound between them;
# and the output.
MATMULS = (6 + 2 + 8) * ggml_whisper.LAYERS + 1
# The encoder's, without a mask, and the decoder's, of its tokens and of the sound.
ATTENTION = 3 * ggml_whisper.LAYERS

# Of the trained model: the decoder writes token by token, on the CPU.
SOUND_MATMULS = (6 + 2) * ggml_whisper_trained.LAYERS
SOUND_ATTENTION = ggml_whisper_trained.LAYERS
STEPS = 16
KINDS = ["f16", "q8_0", "q5_0", "q4_0"]
ENGLISH, ARABIC = "en-Wikipedia-Ignore_All_Rules", "ar-Wikipedia-Five_Pillars"
# With flash attention, and one without; the others are for the long run.
SOME = [(kind, ENGLISH, True) for kind in KINDS] + [("f16", ENGLISH, False)]
OTHERS = [case for case in product(KINDS, [ENGLISH, ARABIC], [True, False]) if case not in SOME]


@pytest.fixture(scope="session")
def whisper(stock: Stock) -> Whisper:
    return Whisper(stock)


def error_of(found: np.ndarray, expected: np.ndarray) -> float:
    """The normalised mean square error."""
    return float(np.mean((found - expected) ** 2) / expected.var())


@pytest.mark.check("whisper")
def test_whisper_random(whisper, seen):
    """64 tokens together, so that the decoder is offloaded too."""
    model = whisper.place / "random.bin"
    ggml_whisper.write(model)
    (cpu, _), (ours, output) = (whisper.logits(model, ours=ours) for ours in [False, True])
    assert np.isfinite(cpu).all() and cpu.std() > 0.1
    error = error_of(ours, cpu)
    assert error < NMSE and ours.argmax() == cpu.argmax(), f"NMSE {error}"
    assert output.stats.offloaded("fp16") == MATMULS
    assert output.stats.attention == ATTENTION
    seen(f"{MATMULS} matmuls, {output.stats.attention} nodes of attention, NMSE {error:.1e}")


@pytest.mark.check("whisper")
@pytest.mark.parametrize("kind,sound,flash", SOME)
def test_whisper(whisper, seen, kind, sound, flash):
    compare(whisper, seen, kind, sound, flash)


@pytest.mark.on_request
@pytest.mark.parametrize("kind,sound,flash", OTHERS)
def test_whisper_files(whisper, seen, kind, sound, flash):
    compare(whisper, seen, kind, sound, flash)


def compare(whisper: Whisper, seen, kind: str, sound: str, flash: bool) -> None:
    """The CPU's logits and tokens at each step, after the tokens that it chooses in F16."""
    f16 = whisper.cpu("f16", sound, flash, STEPS, None)
    tokens = tuple(f16.argmax(axis=1))
    cpu = whisper.cpu(kind, sound, flash, STEPS, tokens)
    ours, output = whisper.hear(kind, sound, flash, STEPS, tokens, ours=True)
    error, stats = error_of(ours, cpu), output.stats
    assert stats.offloaded() == SOUND_MATMULS, stats.text
    # Without flash attention both operands of its matmuls are computed, and the CPU has them.
    assert stats.attention == (SOUND_ATTENTION if flash else 0), stats.text
    if kind == "f16":
        assert error < NMSE, f"NMSE {error}"
    else:
        lost, loses = error_of(cpu, f16), error_of(ours, f16)
        seen(f"NMSE against F16: {loses:.1e}, and the CPU's {lost:.1e}")
        assert loses < LOSS * lost, f"NMSE against F16 {loses}, and the CPU's {lost}"
    # A token may differ where the CPU's logits of both are as near as all logits are to ours.
    choice, steps = ours.argmax(axis=1), np.arange(STEPS)
    gaps = cpu.max(axis=1) - cpu[steps, choice]
    near = 4 * np.sqrt(np.mean((ours - cpu) ** 2))
    assert gaps.max() <= near, f"a token lies {gaps.max()} below the CPU's, more than {near}"
    same = int((gaps == 0).sum())
    seen(f"NMSE {error:.1e}, {same} of {STEPS} tokens, {stats.computed}")


@pytest.mark.on_request
def test_whisper_cli(whisper, seen):
    """A sound that is longer than what whisper hears at once. The decoder reads the text before it,
    which adds matmuls where that is long."""
    path = whisper.sample(ENGLISH)
    (cpu, text, _), (ours, _, output) = (whisper.transcribe("f16", path, b) for b in [False, True])
    assert text and ours == cpu, f"the CPU hears: {text}"
    windows = output.stats.offloaded() // SOUND_MATMULS
    assert windows >= 2 and output.stats.attention >= windows * SOUND_ATTENTION, output.stats.text
    seen(f"{len(cpu)} tokens in {windows} windows: {text}")


@pytest.mark.on_request
@pytest.mark.parametrize("kind", ["f16", "q4_0"])
def test_whisper_server(whisper, seen, kind):
    """Four requests at once, of four parts of a sound: in F16 the CPU's texts, in Q4_0 those of
    requests one after the other."""
    sounds = [whisper.part(ENGLISH, (start, start + 8)) for start in [0, 8, 16, 24]]
    with WhisperServer(whisper, kind, ours=kind != "f16") as server:
        alone = [server.hear(sound) for sound in sounds]
    assert all(alone) and len(set(alone)) == len(sounds), alone
    with WhisperServer(whisper, kind, ours=True) as server:
        with ThreadPoolExecutor(len(sounds)) as threads:
            together = list(threads.map(server.hear, sounds))
        output = server.stop()
    assert together == alone, (together, alone)
    assert output.stats.offloaded() >= len(sounds) * SOUND_MATMULS
    seen(f"{output.stats.offloaded()} matmuls, {together}")
