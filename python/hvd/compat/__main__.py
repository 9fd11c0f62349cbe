# SPDX-License-Identifier: Apache-2.0
"""``python -m hvd.compat enable|disable|status``: see :mod:`hvd.compat`."""

from __future__ import annotations

import argparse
import sys

from hvd import compat


def main() -> int:
    """Runs the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m hvd.compat",
        description="Lets scripts import horovod in this Python environment.",
    )
    parser.add_argument("action", choices=["enable", "disable", "status"])
    action = parser.parse_args().action
    try:
        if action == "enable":
            print(f"wrote {compat.enable()}")
            other = compat.find_other()
            if other is not None:
                print(f"note: {other.origin} is preferred; uninstall it to use hvd")
        elif action == "disable":
            for name in compat.disable() or ["nothing"]:
                print(f"removed {name}")
        else:
            print(compat.status())
    except OSError as e:
        print(f"hvd.compat: {e.filename}: {e.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
