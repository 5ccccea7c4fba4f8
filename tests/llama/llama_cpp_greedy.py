# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes 16 tokens with llama-cpp-python: llama_cpp_greedy.py MODEL PROMPT THREADS

Prints, as JSON, the version of its ggml, the most likely token at each step, and by how much its
logit leads the second.
"""

import ctypes
import json
import sys

import llama_cpp
import numpy as np
from llama_cpp import _ggml

model, prompt, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
# llama.cpp loads no backends where one is built in, as the CPU's is in what pip builds:
# GGML_BACKEND_PATH is read only when it is asked to.
_ggml.libggml.ggml_backend_load_all()
version = _ggml.libggml.ggml_version
version.restype = ctypes.c_char_p
options = dict(n_ctx=512, n_threads=threads, n_threads_batch=threads, verbose=False)
llama = llama_cpp.Llama(model, **options)
llama.eval(llama.tokenize(prompt.encode()))
tokens, leads = [], []
for _ in range(16):
    pointer = llama_cpp.llama_get_logits_ith(llama.ctx, -1)
    logits = np.ctypeslib.as_array(pointer, shape=(llama.n_vocab(),))
    second, best = np.argsort(logits, kind="stable")[-2:]
    tokens.append(int(best))
    leads.append(float(logits[best] - logits[second]))
    llama.eval([int(best)])
llama.close()
print(json.dumps({"ggml": version().decode(), "tokens": tokens, "leads": leads}))
