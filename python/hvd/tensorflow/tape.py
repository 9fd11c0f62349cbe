# SPDX-License-Identifier: Apache-2.0
"""tf.GradientTape whose gradients are reduced over the ranks."""

from __future__ import annotations

import functools
from typing import Any

from ._lazy import tf
from ._reduce import Reducer, check_groups
from .compression import Compression
from .mpi_ops import Average, global_process_set


class _Distributed:
    """Adds the reduction to the class of a tape."""

    _hvd_reducer: Reducer

    def register_local_source(self, source: Any) -> None:
        """Keeps the gradients with respect to `source`, a variable, on this rank."""
        self._hvd_reducer.register_local(source)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **options: Any,
    ) -> Any:
        """Returns the reduced gradients, in the structure of `sources`.

        All parameters but `use_generic_names`, which is accepted and not used,
        are those of tf.GradientTape.gradient().  A gradient that is None on
        this rank stays None; it has to be None on all ranks.  Reduced gradients
        are new tensors.

        Raises what allreduce() raises.  All ranks call it for the same sources in
        the same order.
        """
        grads = super().gradient(  # type: ignore[misc]
            target, sources, output_gradients, **options
        )
        flat_sources = tf.nest.flatten(sources)
        flat = self._flat(grads, len(flat_sources))
        reduced = self._hvd_reducer.reduce(flat, flat_sources)
        if not tf.nest.is_nested(sources):
            return reduced[0]
        return tf.nest.pack_sequence_as(sources, reduced)

    @staticmethod
    def _flat(grads: Any, count: int) -> list[Any]:
        flat = tf.nest.flatten(grads)
        if len(flat) != count:
            raise ValueError(
                f"the tape gave {len(flat)} gradients for {count} sources"
            )
        return flat

    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None,
        use_generic_names: bool = False,
    ) -> tuple[list[Any], list[Any]]:
        """Returns two lists of pairs (source, gradient): those that stay on this
        rank, see register_local_source(), and those reduced."""
        grads = self.gradient(target, sources, output_gradients)
        pairs = list(zip(tf.nest.flatten(sources), tf.nest.flatten(grads)))
        is_local = self._hvd_reducer.is_local
        return (
            [p for p in pairs if is_local(p[0])],
            [p for p in pairs if not is_local(p[0])],
        )


@functools.lru_cache(maxsize=None)
def _class_of(tape_class: type) -> type:
    return type(tape_class.__name__, (_Distributed, tape_class), {})


def DistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns a tape with the record of `gradtape`, whose gradient() reduces.

    Args:
        gradtape: a tf.GradientTape; use the returned tape from here on.
        device_dense, device_sparse: accepted and not used, see mpi_ops.
        compression: of Compression, or a class with its two methods.
        sparse_as_dense: makes tf.IndexedSlices dense; else they are gathered.
        op: Average, Sum, or another operation of allreduce().
        gradient_predivide_factor: f divides by f before the sum, and by
            size / f after it; with Average only.
        num_groups: deprecated form of `groups`.
        groups: how gradients form operations; None: all are one, n > 0: n of
            them, or a list of lists of variables.
        process_set: the ranks that take part; others keep their gradients.
        scale_local_gradients: divides gradients of sources that stay on this
            rank by the size of the set.

    Raises: ValueError for gradient_predivide_factor without Average, or for
    groups that are neither.  gradient() raises what allreduce() raises.

    All ranks call gradient() for the same sources in the same order.
    """
    reducer = Reducer(
        "DistributedGradientTape",
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        check_groups(groups, num_groups),
        process_set,
        scale_local_gradients,
    )
    new = object.__new__(_class_of(type(gradtape)))
    new.__dict__.update(gradtape.__dict__)
    # Inside the `with` block of `gradtape`, that one goes on and ends recording.
    new._recording = False
    new._hvd_reducer = reducer
    return new


def PartialDistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns a DistributedGradientTape that leaves some layers to each rank.

    `local_layers` is a Keras layer or a list of them, whose weights keep this
    rank's gradients.  Raises ValueError if it is anything else.
    """
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for variable in weights_of(local_layers):
        tape.register_local_source(variable)
    return tape


def weights_of(layers: Any) -> list[Any]:
    """Returns the trainable weights of a layer, or of a list of layers.

    None stands for no layers.  Raises ValueError if anything else is not a layer.
    """
    if layers is None:
        return []
    if not isinstance(layers, (list, tuple)):
        layers = [layers]
    if not all(hasattr(layer, "trainable_weights") for layer in layers):
        raise ValueError("local_layers must be a Keras layer or a list of them")
    return [weight for layer in layers for weight in layer.trainable_weights]
