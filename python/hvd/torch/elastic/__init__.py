# SPDX-License-Identifier: Apache-2.0
"""State that survives errors, by the API of Horovod's elastic mode.

See hvd.elastic: run() goes on when a rank dies in a job of hvdrun --min-np, from the
last commit().
"""

from hvd.elastic import ObjectState, State, run
from hvd.torch.elastic.sampler import ElasticSampler
from hvd.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
