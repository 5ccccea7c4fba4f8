#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run a command and write what it took, as JSON: user and system time and wall
time in seconds, the largest resident set in KiB."""

import json
import os
import sys
import time


def main():
    if len(sys.argv) < 3:
        raise SystemExit("usage: measure.py FILE COMMAND ARGUMENTS...")
    out, command = sys.argv[1], sys.argv[2:]
    start = time.monotonic()
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, used = os.wait4(child, 0)
    taken = {
        "wall_s": time.monotonic() - start,
        "user_s": used.ru_utime,
        "system_s": used.ru_stime,
        "peak_kib": used.ru_maxrss,
    }
    with open(out, "w", encoding="utf-8") as file:
        json.dump(taken, file)
    # As a shell would: a signal is not a success.
    raise SystemExit(os.waitstatus_to_exitcode(status) & 255)


if __name__ == "__main__":
    main()
