# SPDX-License-Identifier: Apache-2.0
"""Errors of operations that run eagerly.

A program may expect the classes of TensorFlow, or those of the other modules of
hvd.  So an error that an eager operation raises is an instance of both.
"""

from __future__ import annotations

import functools

from ._lazy import tf
from ..exceptions import HorovodInternalError

_EMISMATCH = 6  # enum hvd_status


@functools.lru_cache(maxsize=None)
def _both(ours: type, theirs: type) -> type:
    """Makes a class derived from both, called like TensorFlow's."""

    def __init__(self: BaseException, message: str) -> None:
        theirs.__init__(self, None, None, message)  # type: ignore[misc]

    body = {"__init__": __init__, "__module__": __name__, "__doc__": theirs.__doc__}
    return type(theirs.__name__, (theirs, ours), body)


def translate(err: BaseException) -> BaseException:
    """Returns the error to raise for `err`, which came from the extension.

    | from the extension                   | also an instance of          |
    |--------------------------------------|------------------------------|
    | ValueError                           | tf.errors.InvalidArgumentError |
    | HorovodInternalError, ranks disagree | tf.errors.FailedPreconditionError |
    | HorovodInternalError, all others     | tf.errors.UnknownError       |

    Any other error is returned as it is.
    """
    if isinstance(err, HorovodInternalError):
        status = getattr(err, "status", 0)
        theirs = (
            tf.errors.FailedPreconditionError
            if abs(status) == _EMISMATCH
            else tf.errors.UnknownError
        )
        new = _both(HorovodInternalError, theirs)(str(err))
        new.status = status
        return new
    if isinstance(err, ValueError):
        return _both(ValueError, tf.errors.InvalidArgumentError)(str(err))
    return err
