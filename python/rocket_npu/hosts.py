# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gives the NPU to programs that contain ggml: llama-cpp-python, xllamacpp, pywhispercpp and
others.

ggml's own programs load backends when they start (`ggml_backend_load_all`). Python packages rarely
do, so that GGML_BACKEND_PATH has no effect. `load_backend` finds the ggml that a package has loaded
and has it load the NPU's backend.
"""

import importlib
import os
from ctypes import CDLL, RTLD_GLOBAL, c_char_p, c_size_t, c_void_p, cast
from pathlib import Path
from types import ModuleType

# The function that loads a backend, and one that the backend needs of the same ggml.
_LOAD, _BASE = "ggml_backend_load", "ggml_backend_buffer_init"
# Opens a library only if the process has it already.
_NO_LOAD = os.RTLD_NOLOAD | os.RTLD_NOW


class HostError(RuntimeError):
    """The backend cannot be loaded into this host; the text says why."""


def backend_path() -> str:
    """The file of the backend, for GGML_BACKEND_PATH of other programs."""
    return str(Path(__file__).with_name("libggml-rocket.so"))


def load_backend(host: str) -> list[str]:
    """Imports the module `host`, such as "llama_cpp", and loads the NPU's backend into its ggml.
    Call it before the first model is loaded. Returns the names of the NPU's devices, none if this
    machine has no usable NPU; ggml's log says why. The software model is used only if
    GGML_ROCKET_DEVICE=model is set."""
    module = importlib.import_module(host)
    ggml = _ggml_of(host) if _owners() else _own_library(module)
    ggml.ggml_backend_load.argtypes = [c_char_p]
    ggml.ggml_backend_load.restype = c_void_p
    backend = ggml.ggml_backend_load(backend_path().encode())
    if not backend:
        raise HostError(f"the ggml of {host} refused the backend; the lines above say why")
    return _devices(ggml, backend)


def _ggml_of(host: str) -> CDLL:
    """The library with ggml's functions that `host` brought into this process."""
    owners = _owners()
    if len(owners) > 1:
        paths = ", ".join(path for path, _ in owners)
        raise HostError(
            f"this process has several copies of ggml: {paths}. Their buffers must not mix; import "
            f"one host only"
        )
    [(path, library)] = owners
    if not hasattr(library, _BASE):
        raise HostError(f"{path} exports no function {_BASE}, which the backend needs")
    # Python loads extension modules so that no other library sees their functions. The backend must.
    return CDLL(path, mode=_NO_LOAD | RTLD_GLOBAL)


def _owners() -> list[tuple[str, CDLL]]:
    """The libraries of this process that load backends, one for each copy of ggml."""
    loaded = [(path, library) for path in _loaded() if (library := _opened(path))]
    having = [(path, library) for path, library in loaded if hasattr(library, _LOAD)]
    # A library also answers for those that it is linked with.
    return [*{_address(library): (path, library) for path, library in reversed(having)}.values()]


def _own_library(module: ModuleType) -> CDLL:
    """Loads the ggml of a package that leaves this to its user."""
    folder = Path(module.__file__ or ".").parent
    found = sorted(folder.rglob("libggml.so*")) if hasattr(module, "__path__") else []
    if not found:
        raise HostError(
            f"{module.__name__} exports no function {_LOAD}: it does not contain ggml, hides its "
            f"functions, or loads it with the first model; then import the part that does, such "
            f"as pywhispercpp.model"
        )
    return CDLL(str(found[0]), mode=RTLD_GLOBAL)


def _loaded() -> list[str]:
    """The libraries of this process, in the order of their names."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if " /" in line}
    return sorted(path for path in paths if ".so" in path.rpartition("/")[2])


def _opened(path: str) -> CDLL | None:
    try:
        return CDLL(path, mode=_NO_LOAD)
    except OSError:
        return None


def _address(library: CDLL) -> int | None:
    return cast(getattr(library, _LOAD), c_void_p).value


def _devices(ggml: CDLL, backend: int) -> list[str]:
    ggml.ggml_backend_reg_dev_count.argtypes = [c_void_p]
    ggml.ggml_backend_reg_dev_count.restype = c_size_t
    ggml.ggml_backend_reg_dev_get.argtypes = [c_void_p, c_size_t]
    ggml.ggml_backend_reg_dev_get.restype = c_void_p
    ggml.ggml_backend_dev_name.argtypes = [c_void_p]
    ggml.ggml_backend_dev_name.restype = c_char_p
    devices = range(ggml.ggml_backend_reg_dev_count(backend))
    gotten = [ggml.ggml_backend_reg_dev_get(backend, index) for index in devices]
    return [ggml.ggml_backend_dev_name(device).decode() for device in gotten]
