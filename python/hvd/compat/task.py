# SPDX-License-Identifier: Apache-2.0
"""A rank of :func:`hvd.compat.launch.run`: calls the function that it reads.

The function comes from standard input, and its result goes to standard output, in lines
that begin with the job's mark.
"""

from __future__ import annotations

import base64
import os
import pickle
import sys

from hvd.compat.launch import _CHUNK, dumps


def main() -> None:
    """Reads the function, calls it and answers."""
    mark, call, path = pickle.load(sys.stdin.buffer)
    sys.path.extend(entry for entry in path if entry not in sys.path)
    out = os.fdopen(os.dup(1), "wb")
    func, args, kwargs = pickle.loads(call)
    data = dumps(func(*args, **kwargs))
    sys.stdout.flush()
    head = mark + os.environ["HVD_RANK"].encode() + b" "
    for start in range(0, len(data), _CHUNK):
        out.write(head + base64.b64encode(data[start : start + _CHUNK]) + b"\n")
    out.close()


if __name__ == "__main__":
    main()
