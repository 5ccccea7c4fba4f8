# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes the wheel $OUT for Python, of $WHEEL_ARCH and $VERSION: the package of python/, the
libraries and npu-probe in $BUILT, and the licences of the crates in them, in the file $LICENCES.
Runs at the root of the sources. The same files give the same bytes: each has the time
$SOURCE_DATE_EPOCH.
"""

import base64
import hashlib
import os
import time
import zipfile
from pathlib import Path

version, arch, out = (os.environ[name] for name in ("VERSION", "WHEEL_ARCH", "OUT"))
built = Path(os.environ["BUILT"])
now = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]

# Programs are for any Python 3. The libraries are called, and are no extension modules.
TAG = f"py3-none-manylinux_2_36_{arch}"
name = f"rocket_npu-{version}"
files: dict[str, tuple[bytes, int]] = {}
for source in sorted(Path("python/rocket_npu").glob("*.py")):
    files[f"rocket_npu/{source.name}"] = (source.read_bytes(), 0o644)
for source, target in [
    ("libggml_rocket.so", "rocket_npu/libggml-rocket.so"),
    ("librocket_npu.so", "rocket_npu/librocket_npu.so.0"),
    # pip puts it where programs are.
    ("npu-probe", f"{name}.data/scripts/npu-probe"),
]:
    files[target] = ((built / source).read_bytes(), 0o755)
info = f"{name}.dist-info"
for licence in ("LICENSE-APACHE", "LICENSE-MIT", os.environ["LICENCES"]):
    path = Path(licence)
    target = "third-party-licences" if path.is_absolute() else path.name
    files[f"{info}/licenses/{target}"] = (path.read_bytes(), 0o644)
files[f"{info}/METADATA"] = (
    f"""Metadata-Version: 2.4
Name: rocket-npu
Version: {version}
Summary: The NPU of the RK3588 for numpy arrays, llama-cpp-python and other packages with ggml
License-Expression: MIT OR Apache-2.0
License-File: LICENSE-APACHE
License-File: LICENSE-MIT
License-File: third-party-licences
Requires-Python: >=3.9
Requires-Dist: numpy
""".encode(),
    0o644,
)
files[f"{info}/WHEEL"] = (
    f"""Wheel-Version: 1.0
Generator: rocket-npu ({version})
Root-Is-Purelib: false
Tag: {TAG}
""".encode(),
    0o644,
)


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


record = [f"{path},sha256={digest(data)},{len(data)}\n" for path, (data, _) in files.items()]
record.append(f"{info}/RECORD,,\n")
files[f"{info}/RECORD"] = ("".join(record).encode(), 0o644)
with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
    for path, (data, mode) in files.items():
        entry = zipfile.ZipInfo(path, now)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        wheel.writestr(entry, data)
