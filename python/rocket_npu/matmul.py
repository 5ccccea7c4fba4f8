# SPDX-License-Identifier: MIT OR Apache-2.0
"""Matmuls on numpy arrays, by librocket_npu.so: C = A x B^T, with B the weights."""

import functools
import weakref
from ctypes import CDLL, POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path

import numpy as np

_OUT = POINTER(c_void_p)
_LOAD = [c_void_p, c_size_t, c_size_t, c_void_p]
# The arguments of functions that return a status, as in rocket_npu.h.
_CALLS = {
    "open": [c_char_p, _OUT],
    "load_i8": [*_LOAD, _OUT],
    "load_f16": [*_LOAD, _OUT],
    "load_w8a8": [*_LOAD, c_bool, _OUT],
    "prepare": [c_void_p, c_size_t, _OUT],
    "run_i8": [c_void_p] * 3,
    "run_f16": [c_void_p] * 3,
    "run_f32": [c_void_p] * 3,
}


@functools.cache
def _library() -> CDLL:
    """The C library, loaded at the first use."""
    library = CDLL(str(Path(__file__).with_name("librocket_npu.so.0")))
    library.rocket_npu_error.restype = c_char_p
    library.rocket_npu_is_model.argtypes = [c_void_p]
    library.rocket_npu_is_model.restype = c_bool
    for name, arguments in _CALLS.items():
        function = getattr(library, f"rocket_npu_{name}")
        function.argtypes, function.restype = arguments, c_int
    for name in ["close", "free_weights", "free_matmul"]:
        function = getattr(library, f"rocket_npu_{name}")
        function.argtypes, function.restype = [c_void_p], None
    return library


class NpuError(RuntimeError):
    """The NPU, its driver or an argument does not allow the call."""


def _call(name: str, *arguments: object) -> None:
    if getattr(_library(), f"rocket_npu_{name}")(*arguments):
        raise NpuError(_library().rocket_npu_error().decode())


class _Handle:
    """Something that the library made. It is freed once, explicitly or with the object."""

    def __init__(self, free: str, make: str, *arguments: object):
        self._pointer = c_void_p()
        _call(make, *arguments, byref(self._pointer))
        release = getattr(_library(), f"rocket_npu_{free}")
        self._free = weakref.finalize(self, release, self._pointer)

    def _use(self) -> c_void_p:
        if not self._free.alive:
            raise NpuError(f"the {type(self).__name__} is closed")
        return self._pointer


class Npu(_Handle):
    """An open NPU, or the software model of one."""

    def __init__(self, device: str | None = None):
        name = None if device is None else device.encode()
        super().__init__("close", "open", name)

    @property
    def is_model(self) -> bool:
        """Whether this is the software model, which is much slower than a CPU."""
        return _library().rocket_npu_is_model(self._use())

    def load(self, b: np.ndarray, *, rotated: bool = True) -> "Weights":
        """Copies the weights `b`, n x k, to the device. int8 gives exact int32 sums, float16 gives
        float32. float32 is quantised to 8 bits with a scale for each row; `rotated` spreads
        outliers over a row first, which is more accurate."""
        return Weights(self, b, rotated)

    def close(self) -> None:
        self._free()

    def __enter__(self) -> "Npu":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# For each type of weights: the function that loads them, the one that multiplies, and the type of
# the result.
_TYPES = {
    np.dtype(np.int8): ("load_i8", "run_i8", np.int32),
    np.dtype(np.float16): ("load_f16", "run_f16", np.float32),
    np.dtype(np.float32): ("load_w8a8", "run_f32", np.float32),
}


class Weights(_Handle):
    """Weights on the device. They keep the device open."""

    def __init__(self, npu: Npu, b: np.ndarray, rotated: bool):
        if b.ndim != 2 or b.dtype not in _TYPES:
            raise NpuError(f"weights are a matrix of int8, float16 or float32, not {_kind(b)}")
        self.dtype, (self.n, self.k) = b.dtype, b.shape
        b = np.ascontiguousarray(b)
        load, self._run, self._result = _TYPES[b.dtype]
        options = [c_bool(rotated)] if load == "load_w8a8" else []
        sizes = [self.n, self.k, b.ctypes.data_as(c_void_p)]
        super().__init__("free_weights", load, npu._use(), *sizes, *options)
        self._plans: dict[int, _Plan] = {}

    def multiply(self, a: np.ndarray) -> np.ndarray:
        """A x B^T for `a`, m x k, of the type of the weights. The plan for m rows is kept."""
        if a.ndim != 2 or a.dtype != self.dtype or a.shape[1] != self.k:
            raise NpuError(f"needs a matrix m x {self.k} of {self.dtype}, not {_kind(a)}")
        m = a.shape[0]
        a = np.ascontiguousarray(a)
        c = np.empty((m, self.n), self._result)
        plan = self._plans.get(m) or self._plans.setdefault(m, _Plan(self, m))
        pointers = [array.ctypes.data_as(c_void_p) for array in (a, c)]
        _call(self._run, plan._use(), *pointers)
        return c

    def free(self) -> None:
        """Frees the memory on the device."""
        self._plans.clear()
        self._free()


class _Plan(_Handle):
    def __init__(self, weights: Weights, m: int):
        super().__init__("free_matmul", "prepare", weights._use(), m)


def _kind(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"


def open(device: str | None = None) -> Npu:
    """Opens a device: a path such as `/dev/accel/accel0`, `model` for the software model, or `auto`
    for the NPU if there is one and the model otherwise. By default ROCKET_DEVICE, else `auto`."""
    return Npu(device)
