# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs a command and writes what it took, as JSON: measure.py FILE COMMAND ARGUMENTS...

A process of its own: what the system says of a child has its parent's memory in it.
"""

import json
import os
import sys
import time

start = time.monotonic()
child = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(child, 0)
wall = time.monotonic() - start
taken = {"wall_s": wall, "user_s": used.ru_utime, "system_s": used.ru_stime}
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(taken | {"peak_mib": used.ru_maxrss / 1024}, file)
# As a shell would: a signal is not a success.
raise SystemExit(os.waitstatus_to_exitcode(status) & 255)
