# SPDX-License-Identifier: Apache-2.0
"""The package ``horovod`` for scripts that were written for Horovod, by hvd.

This is not Horovod.  ``horovod.torch``, ``horovod.tensorflow`` and ``horovod.keras`` are
the modules ``hvd.torch``, ``hvd.tensorflow`` and ``hvd.keras`` themselves, under another
name.  If there is a real Horovod on Python's path, this package replaces itself by it,
unless HVD_COMPAT_FORCE is 1 (``hvdrun --horovod=force``); see :mod:`hvd.compat`.
"""

import os as _os
import sys as _sys

from horovod import _hvd_compat

if not _hvd_compat.give_way(_sys.modules[__name__]):
    _hvd_compat.install()

    from horovod.runner import run

    #: The version of Horovod whose interface this is.
    __version__ = "0.28.1"
    #: What provides it.
    __provider__ = _hvd_compat.provider()
