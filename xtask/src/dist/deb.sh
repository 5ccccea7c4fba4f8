# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes the Debian package $PACKAGE, of $ARCH ($TRIPLET) and $VERSION: the file $OUT. Runs at
# the root of the sources. Programs and libraries are in $BUILT, what programs write about
# themselves is in $MANUALS, the pages of docs/ are in $PAGES, licences of the crates in them are in the file $LICENCES. The
# package's time is $SOURCE_DATE_EPOCH, or $DATE; its files are put together in $STAGE.
set -eu
umask 022
rm -rf "$STAGE"
mkdir -p "$STAGE/DEBIAN"

# Puts a file, with a mode, at a place.
file() { install -D --mode="$1" "$2" "$STAGE/$3"; }
# Makes a file, or one that is compressed, of the standard input.
text() {
    mkdir -p "$(dirname "$STAGE/$1")"
    cat >"$STAGE/$1"
}
packed() { text "$1" && gzip --best --no-name "$STAGE/$1"; }
symlink() {
    mkdir -p "$(dirname "$STAGE/$2")"
    ln -s "$1" "$STAGE/$2"
}
manuals() { for page in "$MANUALS/$1"*.1; do packed "usr/share/man/man1/${page##*/}" <"$page"; done; }

lib=usr/lib/$TRIPLET
# Of Debian 12, the oldest that packages are for.
libraries="libc6 (>= 2.36), libgcc-s1 (>= 4.2)"

case $PACKAGE in
npu-probe)
    file 755 "$BUILT/npu-probe" usr/bin/npu-probe
    file 644 "$BUILT/librocket_preload.so" usr/lib/npu-probe/librocket_preload.so
    file 644 "$MANUALS/npu-probe.bash" usr/share/bash-completion/completions/npu-probe
    file 644 "$MANUALS/npu-probe.fish" usr/share/fish/vendor_completions.d/npu-probe.fish
    file 644 "$MANUALS/_npu-probe" usr/share/zsh/vendor-completions/_npu-probe
    file 644 xtask/src/dist/60-rocket-npu.rules usr/lib/udev/rules.d/60-rocket-npu.rules
    file 644 tests/llama/stories/stories-q4_0.gguf usr/share/npu-probe/stories-q4_0.gguf
    manuals npu-probe
    for page in "$PAGES"/*; do
        file 644 "$page" "usr/share/doc/$PACKAGE/${page##*/}"
    done
    control="Section: utils
Depends: $libraries
Suggests: libggml-rocket, rocket-conformance
Description: self-test and tools for the NPU of the RK3588
 Multiplies matrices on the NPU of a Rockchip RK3588 through the mainline
 Linux driver rocket and compares the result with the CPU's; shows why the
 NPU of a machine works or does not (npu-probe doctor); records, replays and
 disassembles jobs; measures matmuls. Without an NPU it uses a software
 model, which it also shows to other programs as /dev/accel/accel0
 (npu-probe run)."
    ;;
libggml-rocket)
    file 644 "$BUILT/libggml_rocket.so" "$lib/ggml/libggml-rocket.so"
    # ggml looks there for a list of names that has no place for others. This
    # one is of a processor that is never beside an RK3588's NPU.
    symlink ../libggml-rocket.so "$lib/ggml/backends0/libggml-hexagon-rocket.so"
    # The user of Debian's llama-server.service is in no group of the node.
    file 644 xtask/src/dist/llama-server.conf usr/lib/systemd/system/llama-server.service.d/rocket-npu.conf
    control="Section: libs
Depends: $libraries
Enhances: libggml0, llama.cpp, whisper.cpp
Recommends: npu-probe
Description: NPU of the RK3588 for llama.cpp and whisper.cpp
 A backend of ggml that computes the matmuls of prompts and of speech on the
 NPU of a Rockchip RK3588, through the mainline Linux driver rocket. Debian's
 llama.cpp and whisper.cpp find it without configuration. Programs with
 another ggml load it by
 GGML_BACKEND_PATH=/$lib/ggml/libggml-rocket.so."
    ;;
rocket-conformance)
    file 755 "$BUILT/rocket-conformance" usr/bin/rocket-conformance
    manuals rocket-conformance
    control="Section: devel
Depends: $libraries
Description: regression tests for the Linux driver rocket
 Checks what the kernel driver of the RK3588's NPU answers to each call, row
 by row, on a board or on a software model of the driver. For kernel
 developers."
    ;;
librocket-npu0)
    file 644 "$BUILT/librocket_npu.so" "$lib/librocket_npu.so.0"
    echo "librocket_npu 0 librocket-npu0" | text DEBIAN/shlibs
    echo "activate-noawait ldconfig" | text DEBIAN/triggers
    control="Section: libs
Depends: $libraries
Description: matrix multiplication on the NPU of the RK3588
 Multiplies matrices of 8-bit integers, of binary16 numbers, and of floats by
 way of 8-bit integers, on the NPU of a Rockchip RK3588 through the mainline
 Linux driver rocket; without an NPU on a software model."
    ;;
librocket-npu-dev)
    file 644 crates/npu-matmul-c/include/rocket_npu.h usr/include/rocket_npu.h
    sed "s#@prefix@#/usr#; s#@libdir@#\${prefix}/lib/$TRIPLET#; s#@version@#$VERSION#" \
        crates/npu-matmul-c/rocket-npu.pc.in | text "$lib/pkgconfig/rocket-npu.pc"
    symlink librocket_npu.so.0 "$lib/librocket_npu.so"
    for example in attend.c multiply.c multiply.py; do
        file 644 "crates/npu-matmul-c/examples/$example" "usr/share/doc/$PACKAGE/examples/$example"
    done
    control="Section: libdevel
Depends: librocket-npu0 (= $VERSION)
Description: matrix multiplication on the NPU of the RK3588 (for developers)
 Header and link of librocket_npu.so, which multiplies matrices on the NPU of
 a Rockchip RK3588, and programs in C and Python that use it."
    ;;
esac

# The dependencies above are all that programs and libraries need.
elf=$(find "$STAGE" -type f \( -path '*/bin/*' -o -name '*.so*' \))
if [ -n "$elf" ]; then
    needed=$(LC_ALL=C readelf --wide --dynamic --version-info $elf)
    if echo "$needed" | grep -o 'Shared library: .*' | grep -vE '\[(lib(c|m)\.so\.6|libgcc_s\.so\.1|ld-linux-.*)\]'; then
        echo "$PACKAGE needs these libraries; add their packages to its dependencies" >&2
        exit 1
    fi
    glibc=$(echo "$needed" | grep -o 'Name: GLIBC_[0-9.]*' | sort --version-sort | tail -1)
    newest=$(printf '%s\n' "$glibc" "Name: GLIBC_2.36" | sort --version-sort | tail -1)
    if [ "$newest" != "Name: GLIBC_2.36" ]; then
        echo "$PACKAGE needs $glibc; Debian 12 has only GLIBC_2.36" >&2
        exit 1
    fi
    packed "usr/share/doc/$PACKAGE/third-party-licences" <"$LICENCES"
fi

# What each package says about itself.
maintainer="The rocket-npu contributors <rocket-npu@localhost>"
{
    cat <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: rocket-npu

Files: *
Copyright: 2026 The rocket-npu contributors
License: MIT or Apache-2.0
Comment: Crates that are linked into a program or library have licences of their own,
 which are in third-party-licences.gz beside this file.

License: Apache-2.0
 /usr/share/common-licenses/Apache-2.0 has the text.

License: MIT
END
    sed 's/^ *$/./; s/^/ /' LICENSE-MIT
} | text "usr/share/doc/$PACKAGE/copyright"
packed "usr/share/doc/$PACKAGE/changelog" <<END
$PACKAGE ($VERSION) unstable; urgency=medium

  * See CHANGELOG.md of the sources.

 -- $maintainer  $DATE
END
text "usr/share/lintian/overrides/$PACKAGE" <<END
# The project has no address for mail.
$PACKAGE: bogus-mail-host
$PACKAGE: bogus-mail-host-in-debian-changelog
END

(cd "$STAGE" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) | text DEBIAN/md5sums
size=$(find "$STAGE/usr" -printf '%y %s\n' | awk '{ kib += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print kib }')
text DEBIAN/control <<END
Package: $PACKAGE
Version: $VERSION
Architecture: $ARCH
Maintainer: $maintainer
Priority: optional
Installed-Size: $size
$control
END
dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$STAGE" "$OUT"
