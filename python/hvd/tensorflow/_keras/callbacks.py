# SPDX-License-Identifier: Apache-2.0
"""The callbacks, as classes made for one Keras."""

from __future__ import annotations

import warnings
from typing import Any, Callable

from .functions import evaluate
from .. import functions as _functions
from .._lazy import executing_eagerly, np, tf
from .._reduce import identity_of
from ..mpi_ops import Average
from ... import _hvd


def _get(value: Any) -> float:
    """Returns the number that an optimizer's parameter holds."""
    if isinstance(value, (int, float)):
        return float(value)
    if hasattr(value, "numpy") and executing_eagerly():
        return float(value.numpy())
    return float(evaluate(tf.convert_to_tensor(value)))


def _set(value: Any, number: float) -> None:
    """Sets a variable of an optimizer, in a session's graph, too."""
    if executing_eagerly():
        value.assign(number)
    else:
        tf.compat.v1.keras.backend.set_value(value, number)


def _is_variable(value: Any) -> bool:
    return hasattr(value, "assign")


def _make_broadcast(callback: type) -> type:
    class BroadcastGlobalVariablesCallback(callback):  # type: ignore[misc,valid-type]
        """Sets the variables of model and optimizer to those of one rank, after
        the first batch, when all of them exist."""

        def __init__(
            self, root_rank: int, device: str = "", local_variables: Any = None
        ) -> None:
            """Takes the rank to copy from, and variables to leave as they are.

            `device` is accepted and not used.  Raises ValueError if
            `local_variables` is neither a variable nor a list of them.
            """
            super().__init__()
            self.root_rank = root_rank
            self.device = device
            self.broadcast_done = False
            self._local: dict[int, Any] = {}
            if local_variables is None:
                local_variables = []
            elif not isinstance(local_variables, (list, tuple, set)):
                local_variables = [local_variables]
            for variable in local_variables:
                self.register_local_var(variable)

        def register_local_var(self, var: Any) -> None:
            """Leaves `var` as it is on each rank."""
            if not _is_variable(var):
                raise ValueError("local_variables must be variables")
            self._local[identity_of(var)] = var

        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            """Broadcasts if that was not done before; blocks until all ranks do."""
            if self.broadcast_done:
                return
            self.broadcast_done = True
            if not executing_eagerly():
                op = _functions.broadcast_global_variables(self.root_rank)
                evaluate(op)
                return
            variables = [
                v for v in self.model.variables if identity_of(v) not in self._local
            ]
            held = {identity_of(v) for v in variables} | set(self._local)
            variables += [
                v for v in self._optimizer_variables() if identity_of(v) not in held
            ]
            _functions.broadcast_variables(variables, self.root_rank)

        def _optimizer_variables(self) -> list[Any]:
            optimizer = getattr(self.model, "optimizer", None)
            if optimizer is None:
                return []
            return _functions.optimizer_variables(optimizer)

    return BroadcastGlobalVariablesCallback


def _make_average(callback: type) -> type:
    class MetricAverageCallback(callback):  # type: ignore[misc,valid-type]
        """Replaces the metrics at the end of each epoch by the ranks' averages.

        Comes before callbacks that use them.  All ranks have the same metrics.
        """

        def __init__(self, device: str = "") -> None:
            """`device` is accepted and not used."""
            super().__init__()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            """Averages, in the order of the names; blocks until all ranks do."""
            if not logs:
                return
            names = sorted(logs)
            values = np.array([float(logs[n]) for n in names], np.float64)
            averages = np.empty_like(values)
            _hvd.allreduce(values, averages, Average)
            for name, average in zip(names, averages):
                logs[name] = float(average)

    return MetricAverageCallback


def _make_schedule(callback: type) -> type:
    class LearningRateScheduleCallback(callback):  # type: ignore[misc,valid-type]
        """Sets the learning rate to initial_lr times a factor of the epoch."""

        def __init__(
            self,
            initial_lr: float,
            multiplier: float | Callable[[float], float],
            start_epoch: int = 0,
            end_epoch: int | None = None,
            staircase: bool = True,
            momentum_correction: bool = True,
            steps_per_epoch: int | None = None,
        ) -> None:
            """
            Args:
                initial_lr: the learning rate at factor 1.
                multiplier: the factor for an epoch; a number m means
                    m ** (epoch - start_epoch).
                start_epoch, end_epoch: the first epoch, and the one after the
                    last, in which the rate is set; None: no end.
                staircase: sets the rate at the start of an epoch only; else for
                    each batch, with fractions of epochs.
                momentum_correction: scales the momentum for one batch as the
                    rate was changed, if the momentum is a variable.
                steps_per_epoch: batches in an epoch; None: as Keras says.

            Raises ValueError if initial_lr is None.
            """
            super().__init__()
            if initial_lr is None:
                raise ValueError("initial_lr is needed")
            self.initial_lr = initial_lr
            self.start_epoch = start_epoch
            self.end_epoch = end_epoch
            self.staircase = staircase
            self.momentum_correction = momentum_correction
            self.steps_per_epoch = steps_per_epoch
            self.current_epoch = 0
            self.restore_momentum: float | None = None
            if callable(multiplier):
                self.multiplier = multiplier
            else:
                self.multiplier = lambda epoch: multiplier ** (epoch - start_epoch)

        def on_train_begin(self, logs: Any = None) -> None:
            """Finds the number of batches, or raises ValueError."""
            if not self.staircase and not self.steps_per_epoch:
                self.steps_per_epoch = self._steps()
            rate = self._rate()
            if not _is_variable(rate):
                raise ValueError(
                    "the optimizer's learning rate is a schedule; a callback can"
                    " set a number only"
                )

        def _steps(self) -> int:
            steps = (self.params or {}).get("steps")
            if not steps:
                raise ValueError(
                    "Keras does not know the number of batches in an epoch; give"
                    " steps_per_epoch"
                )
            return int(steps)

        def _rate(self) -> Any:
            optimizer = self.model.optimizer
            rate = getattr(optimizer, "_learning_rate", None)
            return rate if _is_variable(rate) else optimizer.learning_rate

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            """Remembers the epoch."""
            self.current_epoch = epoch

        def on_batch_begin(self, batch: int, logs: Any = None) -> None:
            """Sets the rate, if the epoch is one of the schedule's."""
            epoch = self.current_epoch
            if epoch < self.start_epoch:
                return
            if self.end_epoch is not None and epoch >= self.end_epoch:
                return
            if not self.staircase:
                self._adjust(epoch + float(batch) / self.steps_per_epoch)
            elif batch == 0:
                self._adjust(epoch)

        def _adjust(self, epoch: float) -> None:
            rate = self._rate()
            old = _get(rate)
            new = self.initial_lr * self.multiplier(epoch)
            _set(rate, new)
            self._correct_momentum(old, new)

        def _correct_momentum(self, old: float, new: float) -> None:
            momentum = getattr(self.model.optimizer, "momentum", None)
            if not self.momentum_correction or momentum is None or old == new:
                return
            if not _is_variable(momentum):
                if momentum and not self.staircase:
                    _warn_momentum()
                return
            if old != 0:
                self.restore_momentum = _get(momentum)
                _set(momentum, self.restore_momentum * new / old)

        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            """Sets the momentum back."""
            if self.restore_momentum is not None:
                _set(self.model.optimizer.momentum, self.restore_momentum)
                self.restore_momentum = None

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            """Puts the rate into the logs as `lr`."""
            if logs is not None:
                logs["lr"] = _get(self._rate())

    return LearningRateScheduleCallback


_momentum_warned = False


def _warn_momentum() -> None:
    global _momentum_warned
    if not _momentum_warned:
        _momentum_warned = True
        warnings.warn(
            "this optimizer's momentum is not a variable, so it is not corrected when"
            " the learning rate changes; pass momentum_correction=False",
            stacklevel=2,
        )


def _make_warmup(schedule: type) -> type:
    class LearningRateWarmupCallback(schedule):  # type: ignore[misc,valid-type]
        """Raises the learning rate from initial_lr / size to initial_lr over the
        first epochs.

        Source: Goyal et al., Accurate, Large Minibatch SGD, 2017, section 2.2.
        """

        def __init__(
            self,
            initial_lr: float,
            warmup_epochs: int = 5,
            momentum_correction: bool = True,
            steps_per_epoch: int | None = None,
            verbose: int = 0,
        ) -> None:
            """
            Args:
                initial_lr: the rate after the last of these epochs.
                warmup_epochs: their number.
                momentum_correction, steps_per_epoch: as in the schedule.
                verbose: 1 prints a line on rank 0 when the rate is reached.
            """

            def multiplier(epoch: float) -> float:
                done = (epoch + 1.0 / self.steps_per_epoch) / warmup_epochs
                return (1.0 + done * (_hvd.size() - 1)) / _hvd.size()

            super().__init__(
                initial_lr,
                multiplier,
                start_epoch=0,
                end_epoch=warmup_epochs,
                staircase=False,
                momentum_correction=momentum_correction,
                steps_per_epoch=steps_per_epoch,
            )
            self.verbose = verbose

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            """As the schedule's; tells of the last epoch."""
            super().on_epoch_end(epoch, logs)
            if epoch == self.end_epoch - 1 and self.verbose and _hvd.rank() == 0:
                rate = _get(self._rate())
                print(f"\nEpoch {epoch + 1}: the learning rate has risen to {rate:g}.")

    return LearningRateWarmupCallback


def _make_checkpoint(checkpoint: type) -> type:
    class BestModelCheckpoint(checkpoint):  # type: ignore[misc,valid-type]
        """keras.callbacks.ModelCheckpoint that keeps the best model only.

        Set `filepath` before training, on the ranks that are to write it.
        """

        def __init__(
            self,
            monitor: str = "val_loss",
            verbose: int = 0,
            save_weights_only: bool = False,
            mode: str = "auto",
            save_freq: Any = "epoch",
            filepath: Any = None,
        ) -> None:
            """Takes ModelCheckpoint's parameters."""
            ending = ".weights.h5" if save_weights_only else ".keras"
            super().__init__(
                filepath="best" + ending if filepath is None else filepath,
                monitor=monitor,
                verbose=verbose,
                save_best_only=True,
                save_weights_only=save_weights_only,
                mode=mode,
                save_freq=save_freq,
            )
            if filepath is None:
                self.filepath = None

        def on_train_begin(self, logs: Any = None) -> None:
            """Raises ValueError if no file is named."""
            if self.filepath is None:
                raise ValueError("set the filepath of BestModelCheckpoint first")
            super().on_train_begin(logs)

    return BestModelCheckpoint


def make_callbacks(keras: Any) -> dict[str, type]:
    """Returns the callback classes for a Keras, by their names."""
    base = keras.callbacks.Callback
    schedule = _make_schedule(base)
    return {
        "BroadcastGlobalVariablesCallback": _make_broadcast(base),
        "MetricAverageCallback": _make_average(base),
        "LearningRateScheduleCallback": schedule,
        "LearningRateWarmupCallback": _make_warmup(schedule),
        "BestModelCheckpoint": _make_checkpoint(keras.callbacks.ModelCheckpoint),
    }


__all__ = ["make_callbacks"]
