# SPDX-License-Identifier: Apache-2.0
"""A sampler that divides what is left of an epoch among the ranks."""

from __future__ import annotations

import random
from typing import Any, Iterator, Sized

import torch.utils.data

from hvd.common import rank, size


class ElasticSampler(torch.utils.data.Sampler):
    """Gives each rank its share of the rows that are not processed yet.

    Works like torch's DistributedSampler.  After record_batch() for each
    batch, and as part of a TorchState, it goes on after a reset where it was.
    Call set_epoch() at the end of an epoch.

    dataset: what is sampled; its length must not change.
    shuffle: whether rows come in another order in each epoch.
    seed:    of that order; the same on all ranks.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0):
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch: another order, and no row is processed."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Notes that every rank has processed a batch of batch_size rows."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Returns how far the epoch is."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on where state_dict() was called."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divides the remaining rows among the present ranks."""
        self.num_replicas = size()
        self.rank = rank()
        rows = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(rows)
        self.remaining_indices = rows[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        rows = list(self.remaining_indices)
        while 0 < len(rows) < self.total_size:  # all ranks get as many
            rows += rows[: self.total_size - len(rows)]
        self.indices = rows[self.rank : self.total_size : self.num_replicas]
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
