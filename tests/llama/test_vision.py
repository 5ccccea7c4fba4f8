# SPDX-License-Identifier: MIT OR Apache-2.0
"""llama.cpp's image encoder on the NPU: it takes an accelerator only if MTMD_BACKEND_DEVICE names it,
and reads its weights straight into memory after it made the backend."""

import re

import gguf_clip
from options import WORK
from process import Output
from test_placement import NEAR


def test_vision(stock, seen):
    """A model that is shown an image writes what it writes on the CPU; the encoder's matmuls and
    attention are offloaded, and right, if the device is named."""
    encoder, image = WORK / "clip-f16.gguf", WORK / "image.ppm"
    gguf_clip.write(encoder)
    gguf_clip.write_image(image)
    words = ["--mmproj", encoder, "--image", image, "-p", "What is it?", "-n", 4, "--temp", 0]
    words += ["--chat-template", "vicuna", "-v"]

    def run(ours: bool = True, **env: str) -> Output:
        env = {"GGML_ROCKET_VERIFY": "1"} | env
        whole = lambda output: output.text.endswith("\n")
        how = dict(model=stock.full("tiny-1"), ours=ours, env=env, whole=whole)
        return stock.run("llama-mtmd-cli", *words, **how)

    cpu, language = run(ours=False), run()
    both = run(MTMD_BACKEND_DEVICE=stock.device_name)
    assert cpu.text.strip() and cpu.text == language.text == both.text, both.text
    more = both.stats.offloaded() - language.stats.offloaded()
    assert more == gguf_clip.MATMULS, both.stats.text
    attention = both.stats.attention - language.stats.attention
    assert attention == gguf_clip.ATTENTION, both.stats.text
    errors = [float(error) for error in re.findall(r"verified .*: NMSE (\S+)", both.stderr)]
    assert errors and max(errors) <= NEAR, errors
    seen(f"{more} matmuls and {attention} attention of the encoder, NMSE at most {max(errors)}")
