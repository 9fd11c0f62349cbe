# SPDX-License-Identifier: Apache-2.0
"""The functions of hvd.keras and hvd.tensorflow.keras, for one Keras."""

from __future__ import annotations

from typing import Any, Callable

from . import optimizer as _optimizer
from .. import functions as _functions
from .. import mpi_ops, ops
from .._lazy import executing_eagerly, tf
from .._reduce import Reducer, check_groups
from ..compression import Compression
from ..mpi_ops import Average, Sum, global_process_set
from ..tape import weights_of


def evaluate(value: Any) -> Any:
    """Returns what a tensor or operation gives: eagerly itself, else what the
    session of Keras makes of it."""
    if executing_eagerly():
        return value
    return tf.compat.v1.keras.backend.get_session().run(value)


class Functions:
    """Functions that need a Keras; `load` imports and returns it."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    def DistributedOptimizer(
        self,
        optimizer: Any,
        name: str | None = None,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = Compression.none,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        op: int = Average,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        num_groups: int = 0,
        groups: Any = None,
        process_set: Any = global_process_set,
        scale_local_gradients: bool = True,
    ) -> Any:
        """Returns a copy of a Keras optimizer that reduces gradients.

        With Keras 2 gradients are reduced where the optimizer computes them
        (Model.fit, minimize); a loop that calls tape.gradient() uses
        hvd.DistributedGradientTape instead.  With Keras 3 on TensorFlow they are
        reduced in apply(), which all of these call.  The parameters are those
        of hvd.tensorflow.DistributedOptimizer(); `op` is Average or Sum.  The
        copy takes over the optimizer's variables and state.

        Raises: ValueError for values that exclude each other or an optimizer
        that is distributed already; NotImplementedError for Keras 3 without
        TensorFlow.
        """
        if op not in (Average, Sum):
            raise ValueError("op must be hvd.Average or hvd.Sum")
        groups = check_groups(groups, num_groups)
        prefix = name or f"Distributed{type(optimizer).__name__}"

        def make_reducer() -> Reducer:
            return Reducer(
                prefix,
                compression,
                sparse_as_dense,
                op,
                gradient_predivide_factor,
                groups,
                process_set,
                scale_local_gradients,
            )

        settings = _optimizer.Settings(
            make_reducer, backward_passes_per_step, average_aggregated_gradients
        )
        return _optimizer.distribute(self._load(), optimizer, settings)

    def PartialDistributedOptimizer(
        self,
        optimizer: Any,
        name: str | None = None,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = Compression.none,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        op: int = Average,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        groups: Any = None,
        process_set: Any = global_process_set,
        local_layers: Any = None,
        scale_local_gradients: bool = True,
    ) -> Any:
        """Returns a DistributedOptimizer() that leaves some layers to each rank.

        `local_layers` is a Keras layer or a list of them, whose weights keep
        this rank's gradients.  Raises ValueError if it is anything else.
        """
        local = weights_of(local_layers)
        new = self.DistributedOptimizer(
            optimizer,
            name,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
        for variable in local:
            new.register_local_var(variable)
        return new

    def load_model(
        self,
        filepath: Any,
        custom_optimizers: Any = None,
        custom_objects: Any = None,
        compression: Any = Compression.none,
        legacy_opts: bool = False,
    ) -> Any:
        """Loads a model, and makes its optimizer a DistributedOptimizer().

        Args:
            filepath: what keras.models.load_model() takes.
            custom_optimizers: classes of optimizers that Keras does not have.
            custom_objects: names and classes, or functions that make objects.
            compression: of the DistributedOptimizer.
            legacy_opts: accepted; the saved model tells which optimizer it has.

        Returns: the model, with the state of its optimizer.

        Raises: what keras.models.load_model() raises.
        """
        objects = {cls.__name__: cls for cls in custom_optimizers or []}
        objects.update(custom_objects or {})
        keras = self._load()
        model = keras.models.load_model(filepath, custom_objects=objects)
        found = getattr(model, "optimizer", None)
        if found is not None and not _optimizer.is_distributed(found):
            model.optimizer = self.DistributedOptimizer(found, compression=compression)
        return model


def broadcast_global_variables(root_rank: int) -> Any:
    """Sets the global variables of the session's graph to those of one rank.

    Raises RuntimeError if operations run eagerly; see the function of the same
    name in hvd.tensorflow.
    """
    return evaluate(_functions.broadcast_global_variables(root_rank))


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Returns the reduction of the ranks' values, each a number, array or tensor
    of the same shape; see hvd.tensorflow.allreduce()."""
    return evaluate(
        ops.allreduce(
            tf.constant(value),
            average,
            compression=compression,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            name=name,
        )
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """Returns the ranks' values, joined along the first dimension; see
    hvd.tensorflow.allgather() for errors and ordering."""
    return evaluate(mpi_ops.allgather(tf.constant(value), name))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Returns the value of rank `root_rank`; see hvd.tensorflow.broadcast()."""
    return evaluate(mpi_ops.broadcast(tf.constant(value), root_rank, name))


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """Returns this rank's rows of the reduction of the ranks' values; see
    hvd.tensorflow.reducescatter()."""
    return evaluate(ops.reducescatter(tf.constant(value), op=op, name=name))
