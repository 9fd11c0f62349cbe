# SPDX-License-Identifier: Apache-2.0
"""State that survives errors, by the API of Horovod's elastic mode.

hvdrun starts a job's ranks once.  The classes work in such a job: state is
synchronised at the beginning, and after an error that all ranks survive the
function runs again from the last commit().  After the death of a rank the job
ends, with an error that names it.
"""

from __future__ import annotations

from typing import Any, Callable

from hvd.common import init, shutdown
from hvd.elastic import ObjectState, State, run_with
from hvd.torch.elastic.sampler import ElasticSampler
from hvd.torch.elastic.state import TorchState


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function that synchronises its state and starts over after errors.

    func: takes a State as its first argument.

    See hvd.elastic.run_with().
    """
    return run_with(func, _reset)


def _reset() -> None:
    """Leaves the world and joins it again."""
    shutdown()
    init()


__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
