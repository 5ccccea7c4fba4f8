#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Installs what is beside it below PREFIX [default: /usr/local], and the udev rule:
#     sudo ./install.sh [PREFIX]
#     sudo ./install.sh --remove [PREFIX]
set -eu
cd "$(dirname "$0")"
remove=
if [ "${1-}" = --remove ]; then
    remove=yes
    shift
fi
prefix=${1-/usr/local}
rule=/etc/udev/rules.d/60-rocket-npu.rules

# Each file, its mode, and its place below the prefix.
files="npu-probe 755 bin/npu-probe
librocket_preload.so 644 lib/npu-probe/librocket_preload.so
libggml-rocket.so 644 lib/libggml-rocket.so
librocket_npu.so.0 644 lib/librocket_npu.so.0
rocket_npu.h 644 include/rocket_npu.h"

if [ -n "$remove" ]; then
    echo "$files" | while read -r _ _ place; do rm -f "$prefix/$place"; done
    rm -f "$prefix/lib/librocket_npu.so" "$rule"
    rmdir "$prefix/lib/npu-probe" 2>/dev/null || true
    ldconfig 2>/dev/null || true
    exit
fi
echo "$files" | while read -r file mode place; do
    mkdir -p "$(dirname "$prefix/$place")"
    cp "$file" "$prefix/$place"
    chmod "$mode" "$prefix/$place"
done
ln -sf librocket_npu.so.0 "$prefix/lib/librocket_npu.so"
# Not every system has it, or needs it.
ldconfig 2>/dev/null || true
if [ -d /etc/udev ]; then
    mkdir -p /etc/udev/rules.d
    cp 60-rocket-npu.rules "$rule"
    echo "run \`sudo udevadm trigger\`, or reboot, for the device node's permissions"
fi
echo "for llama.cpp: export GGML_BACKEND_PATH=$prefix/lib/libggml-rocket.so"
