# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has a Python package that contains ggml compute: python_host.py HOST DEVICE [INPUT...]

With a DEVICE of ours it loads the backend first, by the package rocket_npu; with `none` it does
not. Prints, as JSON, the devices that this gave and the text that the package wrote.
"""

import importlib
import json
import sys


def xllamacpp(model: str, prompt: str, threads: str) -> str:
    from xllamacpp import CommonParams, Server

    params = CommonParams()
    params.model.path = model
    params.n_ctx, params.n_parallel, params.warmup = 512, 1, False
    params.cpuparams.n_threads = int(threads)
    wanted = dict(prompt=prompt, max_tokens=16, top_k=1, temperature=0, ignore_eos=True)
    return Server(params).handle_completions(wanted)["choices"][0]["text"]


def pywhispercpp(model: str, sound: str, threads: str) -> str:
    from pywhispercpp.model import Model

    heard = Model(model, n_threads=int(threads)).transcribe(sound, temperature_inc=0.0)
    return " ".join(segment.text for segment in heard)


# The module that has loaded ggml when it is imported, and what writes a text.
HOSTS = {
    "xllamacpp": ("xllamacpp", xllamacpp),
    "pywhispercpp": ("pywhispercpp.model", pywhispercpp),
    # It has ggml and no program for it.
    "libggml": ("libggml", lambda: ""),
}

if __name__ == "__main__":
    name, device, *given = sys.argv[1:]
    module, write = HOSTS[name]
    devices = []
    if device == "none":
        importlib.import_module(module)
    else:
        import rocket_npu

        devices = rocket_npu.load_backend(module)
    print(json.dumps({"devices": devices, "text": write(*given)}))
