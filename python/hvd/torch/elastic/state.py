# SPDX-License-Identifier: Apache-2.0
"""The state of a training with torch: models, optimizers, samplers, values."""

from __future__ import annotations

import copy
import inspect
from typing import Any, Callable

import torch

from hvd.elastic import ObjectState
from hvd.torch.elastic.sampler import ElasticSampler
from hvd.torch.functions import (
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)


class StateHandler:
    """Saves, restores and synchronises one value of a TorchState.

    sync() may have a parameter root_rank, the rank whose state all get, else rank 0's.
    """

    def __init__(self, value: Any):
        self.value = value

    def save(self) -> None:
        """Keeps a copy of the value's state."""
        raise NotImplementedError

    def restore(self) -> None:
        """Returns the value to the state of the last save()."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives all ranks the state of rank 0."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Takes another object as the value."""
        self.value = value
        self.save()


class _StateDictHandler(StateHandler):
    """Handles a value with state_dict() and load_state_dict()."""

    def __init__(self, value: Any):
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        # What is loaded may be shared with the value, and change with it.
        self.value.load_state_dict(copy.deepcopy(self._saved))


class ModelStateHandler(_StateDictHandler):
    """Handles a torch.nn.Module."""

    def sync(self, root_rank: int = 0) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank)


class OptimizerStateHandler(_StateDictHandler):
    """Handles an optimizer."""

    def sync(self, root_rank: int = 0) -> None:
        broadcast_optimizer_state(self.value, root_rank)


class SamplerStateHandler(_StateDictHandler):
    """Handles an ElasticSampler."""

    def sync(self, root_rank: int = 0) -> None:
        state = self.value.state_dict()
        state = broadcast_object(state, root_rank, name="elastic.sampler")
        self.value.load_state_dict(state)


_registry: list[tuple[type, Callable[[Any], StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, Callable[[Any], StateHandler]]]:
    """Returns the pairs of a type and the class that handles its values."""
    return _registry


def set_handler_registry(
    registry: list[tuple[type, Callable[[Any], StateHandler]]]
) -> None:
    """Replaces the pairs that get_handler_registry() returns."""
    global _registry
    _registry = registry


def _handler_for(value: Any) -> StateHandler | None:
    """Returns a handler of a value; None if it is an ordinary object."""
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    return None


def _takes_root(handler: StateHandler) -> bool:
    """Tells whether a handler's sync() can take the state of any rank."""
    return "root_rank" in inspect.signature(handler.sync).parameters


class TorchState(ObjectState):
    """The state of a training, each part an attribute.

    model, optimizer, and keywords: models, optimizers and ElasticSamplers are
    handled as such, all else is pickled.  commit() keeps a copy, restore()
    returns to it, sync() gives all ranks the state of rank 0.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ):
        object.__setattr__(self, "_handlers", {})
        values = dict(kwargs, model=model, optimizer=optimizer)
        ordinary = {}
        for name, value in values.items():
            handler = _handler_for(value)
            if handler is None:
                ordinary[name] = value
            else:
                object.__setattr__(self, name, value)
                self._handlers[name] = handler
        super().__init__(bcast_object=broadcast_object, **ordinary)

    def save(self) -> None:
        """Keeps a copy of the whole state."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Returns to the last copy."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self, root_rank: int = 0) -> None:
        """Gives all ranks the state of root_rank, and saves it."""
        for handler in self._handlers.values():
            if _takes_root(handler):
                handler.sync(root_rank=root_rank)
            else:
                handler.sync()
        super().sync(root_rank)
        # Only now, so that after an error in between all is as before.
        for handler in self._handlers.values():
            handler.save()

    def takes_root(self) -> bool:
        """Tells whether all parts can be taken from any rank."""
        return super().takes_root() and all(map(_takes_root, self._handlers.values()))

    def reset(self) -> None:
        """Divides the rows of samplers among the present ranks."""
        for handler in self._handlers.values():
            if isinstance(handler, SamplerStateHandler):
                handler.value.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._handlers:
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)
