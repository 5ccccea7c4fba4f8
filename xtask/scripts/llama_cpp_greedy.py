#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Write tokens after a prompt with llama-cpp-python, as JSON.

Prints the version of its ggml, the tokens, the most likely one at each step,
and by how much its logit leads the second.
"""

import argparse
import ctypes
import json

import llama_cpp
import numpy as np
from llama_cpp import _ggml


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("prompt")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    # llama.cpp loads no backends where one is built in, as the CPU's is in what
    # pip builds: GGML_BACKEND_PATH is read only when it is asked to.
    _ggml.libggml.ggml_backend_load_all()
    version = _ggml.libggml.ggml_version
    version.restype = ctypes.c_char_p

    llama = llama_cpp.Llama(
        args.model,
        n_ctx=512,
        n_threads=args.threads,
        n_threads_batch=args.threads,
        verbose=False,
    )
    llama.eval(llama.tokenize(args.prompt.encode()))
    tokens, leads = [], []
    for _ in range(args.tokens):
        logits = np.ctypeslib.as_array(
            llama_cpp.llama_get_logits_ith(llama.ctx, -1), shape=(llama.n_vocab(),)
        )
        second, best = np.argsort(logits, kind="stable")[-2:]
        tokens.append(int(best))
        leads.append(float(logits[best] - logits[second]))
        llama.eval([int(best)])
    llama.close()
    print(json.dumps({"ggml": version().decode(), "tokens": tokens, "leads": leads}))


if __name__ == "__main__":
    main()
