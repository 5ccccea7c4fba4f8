# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes the archive $OUT for systems without dpkg, which has one directory, $NAME. Variables are
# those of deb.sh.
set -eu
umask 022
rm -rf "$STAGE"
mkdir -p "$STAGE/$NAME"
install --mode=755 "$BUILT/npu-probe" xtask/src/dist/install.sh "$STAGE/$NAME"
install --mode=644 "$BUILT/librocket_preload.so" xtask/src/dist/60-rocket-npu.rules \
    crates/npu-matmul-c/include/rocket_npu.h LICENSE-APACHE LICENSE-MIT "$STAGE/$NAME"
install --mode=644 "$BUILT/libggml_rocket.so" "$STAGE/$NAME/libggml-rocket.so"
install --mode=644 "$BUILT/librocket_npu.so" "$STAGE/$NAME/librocket_npu.so.0"
install --mode=644 "$LICENCES" "$STAGE/$NAME/third-party-licences"
. xtask/src/dist/tar.sh
