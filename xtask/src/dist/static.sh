# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes the archive $OUT of static programs, which has one directory, $NAME. Variables are
# those of deb.sh.
set -eu
umask 022
rm -rf "$STAGE"
mkdir -p "$STAGE/$NAME"
install --mode=755 "$BUILT/npu-probe" "$BUILT/rocket-conformance" "$STAGE/$NAME"
install --mode=644 LICENSE-APACHE LICENSE-MIT "$STAGE/$NAME"
install --mode=644 "$LICENCES" "$STAGE/$NAME/third-party-licences"
. xtask/src/dist/tar.sh
