# SPDX-License-Identifier: MIT OR Apache-2.0
"""Speculative decoding: a draft model writes single tokens on the CPU, and the model checks them in
a batch, which is the NPU's work."""

import pytest

from gguf_tiny import OF_A_STEP
from reference import MODEL, PROMPT
from server import Server

TOKENS = 32
# Rows of a batch that is checked: the drafted tokens and the one before.
BATCHES = [4, 8, 16]


@pytest.mark.on_request
@pytest.mark.parametrize("rows", BATCHES)
def test_speculative(rows, stock, reference, seen):
    """The text is the CPU's without a draft, and each batch of so many rows is offloaded."""
    text = reference(MODEL, PROMPT, TOKENS)
    # The same model in fewer bits: the nearest thing to a draft that knows what it writes.
    draft = stock.quantised(MODEL, "Q4_0")
    drafted = str(rows - 1)
    words = ["--spec-type", "draft-simple", "-md", draft]
    words += ["--spec-draft-n-max", drafted, "--spec-draft-n-min", drafted]
    env = {"GGML_ROCKET_MIN_M": str(rows)}
    with Server(stock, stock.full(MODEL), *map(str, words), ours=True, env=env) as server:
        [written] = server.write(text.tokens, count=TOKENS)
        stats = server.stop().stats
    agreement = text.judge(written)
    assert 0 < server.accepted <= server.drafted
    # Of the model, in F16; the draft's prompt is offloaded too, in its precision.
    batches = server.drafted // (rows - 1)
    assert stats.offloaded("fp16") >= batches * OF_A_STEP, stats.text
    seen(
        f"{rows} rows: {server.accepted} of {server.drafted} drafted tokens accepted, "
        f"{stats.computed}, {agreement}"
    )
