# SPDX-License-Identifier: MIT OR Apache-2.0
# Compiles the arm64 kernel at $SOURCE, with the options in $OUTPUT/fragment, into the directory
# $OUTPUT, which may hold what an earlier call left, and the device trees of the chip's boards,
# with symbols. $COMPILER is a gcc. With $ARCHIVE, the source
# is unpacked from there first, and patched with the files that are the arguments.
set -eu
if [ -n "${ARCHIVE:-}" ]; then
    mkdir -p "$SOURCE"
    tar --extract --strip-components=1 --file "$ARCHIVE" --directory "$SOURCE"
    for patch in "$@"; do
        patch --directory "$SOURCE" --strip=1 --batch --forward --input "$patch"
    done
fi
# Others may use this machine meanwhile.
build() {
    nice -n 10 make -C "$SOURCE" O="$OUTPUT" ARCH=arm64 CROSS_COMPILE="${COMPILER%gcc}" \
        KCONFIG_ALLCONFIG="$OUTPUT/fragment" "$@" >"$OUTPUT/log" 2>&1 || {
        tail -20 "$OUTPUT/log" >&2
        exit 1
    }
}
build allnoconfig
# From 7.3 on that is part of SYSCTL.
if grep '^CONFIG_' "$OUTPUT/fragment" | grep -v PROC_SYSCTL | grep -vxFf "$OUTPUT/.config" >&2; then
    echo "that is not in the kernel's configuration" >&2
    exit 1
fi
build "-j$(nproc)" Image
trees=$(cd "$SOURCE/arch/arm64/boot/dts" && ls rockchip/rk3588*.dts | sed 's/ts$/tb/')
# shellcheck disable=SC2086 # A list of names without spaces.
build "-j$(nproc)" DTC_FLAGS=-@ $trees
