# SPDX-License-Identifier: MIT OR Apache-2.0
"""The NPU of the RK3588 for Python: matmuls of numpy arrays, and a backend for packages that contain
ggml, such as llama-cpp-python.

    import numpy as np, rocket_npu
    with rocket_npu.open() as npu:
        weights = npu.load(np.ones((32, 64), np.int8))
        c = weights.multiply(np.ones((8, 64), np.int8))

`load_backend("llama_cpp")` gives the NPU to llama-cpp-python and other hosts of ggml.
"""

from rocket_npu.hosts import HostError, backend_path, load_backend
from rocket_npu.matmul import Npu, NpuError, Weights, open

__all__ = [
    "HostError",
    "Npu",
    "NpuError",
    "Weights",
    "backend_path",
    "load_backend",
    "open",
]
