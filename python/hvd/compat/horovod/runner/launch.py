# SPDX-License-Identifier: Apache-2.0
"""``python -m horovod.runner.launch``: horovodrun."""

from hvd.compat.launch import run_commandline

__all__ = ["run_commandline"]

if __name__ == "__main__":
    run_commandline()
