# SPDX-License-Identifier: Apache-2.0
"""Callbacks that keep an elastic state up to date, made for one Keras."""

from __future__ import annotations

from typing import Any


def _make_commit(callback: type) -> type:
    class CommitStateCallback(callback):  # type: ignore[misc,valid-type]
        """Commits the state after every `batches_per_commit`-th batch, and after
        each epoch."""

        def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
            super().__init__()
            self.state = state
            self.batches_per_commit = batches_per_commit
            self.batches_remaining = batches_per_commit

        def on_train_begin(self, logs: Any = None) -> None:
            self.batches_remaining = self.batches_per_commit

        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            self.batches_remaining -= 1
            if self.batches_remaining == 0:
                self.state.commit()
                self.batches_remaining = self.batches_per_commit

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.state.commit()

    return CommitStateCallback


def _make_batch(callback: type) -> type:
    class UpdateBatchStateCallback(callback):  # type: ignore[misc,valid-type]
        """Keeps the number of the batch in state.batch."""

        def __init__(self, state: Any) -> None:
            super().__init__()
            self.state = state

        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            self.state.batch = batch

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.state.batch = 0

    return UpdateBatchStateCallback


def _make_epoch(callback: type) -> type:
    class UpdateEpochStateCallback(callback):  # type: ignore[misc,valid-type]
        """Keeps the number of epochs done in state.epoch."""

        def __init__(self, state: Any) -> None:
            super().__init__()
            self.state = state
            self.initial_epoch = state.epoch

        def on_train_begin(self, logs: Any = None) -> None:
            self.initial_epoch = self.state.epoch

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.state.epoch = self.initial_epoch + epoch + 1

    return UpdateEpochStateCallback


def make_elastic(keras: Any) -> dict[str, Any]:
    """Returns the classes and functions of the module `elastic`, by name."""
    from ..elastic import TensorFlowKerasState, run

    base = keras.callbacks.Callback
    return {
        "KerasState": TensorFlowKerasState,
        "CommitStateCallback": _make_commit(base),
        "UpdateBatchStateCallback": _make_batch(base),
        "UpdateEpochStateCallback": _make_epoch(base),
        "run": run,
    }
