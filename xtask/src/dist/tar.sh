# SPDX-License-Identifier: MIT OR Apache-2.0
# Packs the directory $NAME in $STAGE as $OUT, always the same bytes from the same files.
tar --create --sort=name --format=gnu --owner=0 --group=0 --numeric-owner \
    --mtime="@$SOURCE_DATE_EPOCH" --use-compress-program="xz --threads=1" --file="$OUT" \
    --directory="$STAGE" "$NAME"
