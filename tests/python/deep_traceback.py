# SPDX-License-Identifier: Apache-2.0
"""Rank 1 fails deep in its program, and writes more afterwards."""

import atexit
import os
import sys
import time


def noise():
    for i in range(50):
        print("warning: connection closed", i, file=sys.stderr)


def fails_at(depth):
    names = "abcdefghijklmnopqrst"
    if depth == len(names):
        raise ValueError("the innermost error")
    # A name of its own for each level, as in a real program.
    scope = {"fails_at": fails_at, "depth": depth}
    source = "def level_" + names[depth] + "():\n    fails_at(depth + 1)\n"
    exec(compile(source, "/src/" + "x" * 100 + names[depth] + ".py", "exec"), scope)
    scope["level_" + names[depth]]()


if os.environ["RANK"] == "1":
    atexit.register(noise)
    try:
        fails_at(0)
    except ValueError as error:
        raise RuntimeError("the outermost error") from error
print("waiting", file=sys.stderr)
time.sleep(600)
