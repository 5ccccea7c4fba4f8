#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Multiplies floats on the NPU, or on the software model, by way of 8-bit integers."""

from array import array
from ctypes import CDLL, POINTER, byref, c_bool, c_char_p, c_float, c_int, c_size_t, c_void_p

npu = CDLL("librocket_npu.so.0")
npu.rocket_npu_error.restype = c_char_p
floats = POINTER(c_float)
for name, arguments in {
    "open": [c_char_p, POINTER(c_void_p)],
    "load_w8a8": [c_void_p, c_size_t, c_size_t, floats, c_bool, POINTER(c_void_p)],
    "prepare": [c_void_p, c_size_t, POINTER(c_void_p)],
    "run_f32": [c_void_p, floats, floats],
}.items():
    function = getattr(npu, f"rocket_npu_{name}")
    function.argtypes, function.restype = arguments, c_int
for name in ["close", "free_weights", "free_matmul"]:
    function = getattr(npu, f"rocket_npu_{name}")
    function.argtypes, function.restype = [c_void_p], None


def call(name, *arguments):
    """Calls a function that can fail."""
    if getattr(npu, f"rocket_npu_{name}")(*arguments):
        raise RuntimeError(npu.rocket_npu_error().decode())


def matrix(numbers):
    """Numbers in memory that C can read and write."""
    numbers = array("f", numbers)
    return numbers, (c_float * len(numbers)).from_buffer(numbers)


M, N, K = 2, 3, 64
a, a_memory = matrix((i % 7 - 3) / 4 for i in range(M * K))
b, b_memory = matrix((i % 5 - 2) / 8 for i in range(N * K))
c, c_memory = matrix([0.0] * (M * N))

engine, weights, matmul = c_void_p(), c_void_p(), c_void_p()
call("open", None, byref(engine))
call("load_w8a8", engine, N, K, b_memory, True, byref(weights))
call("prepare", weights, M, byref(matmul))
call("run_f32", matmul, a_memory, c_memory)
npu.rocket_npu_free_matmul(matmul)
npu.rocket_npu_free_weights(weights)
npu.rocket_npu_close(engine)

for m in range(M):
    for n in range(N):
        exact = sum(a[m * K + k] * b[n * K + k] for k in range(K))
        assert abs(c[m * N + n] - exact) < 0.05, (m, n, c[m * N + n], exact)
print(f"{M * N} elements are right")
