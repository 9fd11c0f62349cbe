# SPDX-License-Identifier: Apache-2.0
"""States that can be saved and restored, and run().

hvd.elastic says what happens when a rank dies.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from ..elastic import ERESIZED, ObjectState
from ..elastic import run as run_any
from ..exceptions import HorovodInternalError
from ._lazy import executing_eagerly, tf
from .functions import (
    broadcast_object,
    broadcast_variables,
    global_variables,
    optimizer_variables,
)


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of (state, ...) that calls `func` with its parameters,
    as hvd.elastic.run() does.

    An error of libhvd that TensorFlow reports from a graph is raised as
    HorovodInternalError.
    """

    @functools.wraps(func)
    def wrapper(state: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return func(state, *args, **kwargs)
        except tf.errors.UnknownError as err:
            if "HorovodInternalError" not in str(err) or isinstance(
                err, HorovodInternalError
            ):
                raise
            raise _from_graph(str(err)) from err

    return run_any(wrapper)


def _from_graph(text: str) -> HorovodInternalError:
    """Makes the error of libhvd whose text TensorFlow has kept of it."""
    error = HorovodInternalError(text)
    if "call hvd_sync" in text:
        error.status = ERESIZED
    return error


class _VariableState(ObjectState):
    """A state of variables and of objects that are given by name."""

    def __init__(self, session: Any, **kwargs: Any) -> None:
        self._session = session
        self._operations: dict[int, Any] = {}
        self._values: list[Any] = []
        self._save_variables()
        super().__init__(bcast_object=broadcast_object, **kwargs)

    def _all(self) -> list[Any]:
        raise NotImplementedError

    def _in_session(self) -> bool:
        return not executing_eagerly()

    def _sess(self) -> Any:
        return self._session or tf.compat.v1.get_default_session()

    def _save_variables(self) -> None:
        if self._in_session():
            self._values = self._sess().run(self._all())
        else:
            self._values = [tf.convert_to_tensor(v).numpy() for v in self._all()]

    def _load_variables(self) -> None:
        for variable, value in zip(self._all(), self._values):
            if self._in_session():
                variable.load(value, self._sess())
            else:
                variable.assign(value)

    def save(self) -> None:
        """Remembers the values that variables and objects have now."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Gives variables and objects the values that were saved last."""
        self._load_variables()
        super().restore()

    def sync(self, root_rank: int = 0) -> None:
        """Gives variables and objects the values of root_rank, and saves them."""
        if self._in_session():
            if root_rank not in self._operations:
                operation = broadcast_variables(self._all(), root_rank)
                self._operations[root_rank] = operation
            self._sess().run(self._operations[root_rank])
        else:
            broadcast_variables(self._all(), root_rank)
        super().sync(root_rank)
        self._save_variables()


class TensorFlowState(_VariableState):
    """The state of a list of variables, and of objects.

    Args:
        variables: TensorFlow's variables; None: the global variables.
        session: that has their values, where operations go into a graph; None:
            the default session.
        kwargs: objects, which become attributes.
    """

    def __init__(
        self, variables: Any = None, session: Any = None, **kwargs: Any
    ) -> None:
        self.variables = list(variables or global_variables())
        super().__init__(session, **kwargs)

    def _all(self) -> list[Any]:
        return self.variables


class TensorFlowKerasState(_VariableState):
    """The state of a Keras model and its optimizer, and of objects.

    Args:
        model: built; else ValueError is raised.
        optimizer: None: that of the model.
        backend: accepted and not used.
        kwargs: objects, which become attributes.
    """

    def __init__(
        self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any
    ) -> None:
        if not getattr(model, "built", True):
            raise ValueError("the model is not built; call model.build(input_shape)")
        self.model = model
        self.optimizer = optimizer or model.optimizer
        session = None
        if not executing_eagerly():
            session = tf.compat.v1.keras.backend.get_session()
        super().__init__(session, **kwargs)

    def _all(self) -> list[Any]:
        return list(self.model.variables) + optimizer_variables(self.optimizer)


__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]
