# SPDX-License-Identifier: MIT OR Apache-2.0
"""`cargo xtask demo`: see it work, on any machine."""

from models import Models
from options import OPTIONS
from reference import MODEL, PROMPT, Reference
from test_texts import compare


def shown(text: bytes) -> str:
    """Text of a model that writes any bytes, in one line."""
    return text.decode(errors="backslashreplace").encode("unicode_escape").decode()


stock = Models()
print(f"""
llama.cpp: Debian {OPTIONS.suite} as it comes, ggml {stock.ggml_version}. Model: 4 layers of random F16 weights, made
here, so the text means nothing.

prompt
  {PROMPT}""")
with Reference(stock, stock.full(MODEL), PROMPT, 64) as reference:
    output, agreement = compare(reference)
print(f"""
the CPU alone goes on
  {shown(reference.text)}

with GGML_BACKEND_PATH=libggml-rocket.so and GGML_ROCKET_DEVICE={OPTIONS.device}
  {shown(output.generated)}

agreement
  {agreement}

ROCKET statistics:{output.stats.text.rstrip()}""")
