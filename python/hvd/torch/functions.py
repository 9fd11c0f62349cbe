# SPDX-License-Identifier: Apache-2.0
"""Broadcasts of parameters, optimizer states and Python objects."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import torch

from hvd.common import rank
from hvd.objects import allgather_object, broadcast_object  # noqa: F401
from hvd.torch.gather import broadcast_async_
from hvd.torch.handle import dense, synchronize


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Copies root_rank's parameters to all ranks.

    params: a dict such as model.state_dict(), or a list of tensors or of pairs
            (name, tensor); the same names, shapes and dtypes on all ranks.
            None as a value is skipped.  ValueError for anything else.

    Blocks until all parameters have arrived; they travel together.
    """
    if isinstance(params, dict):
        pairs = sorted(params.items())
    elif isinstance(params, list):
        pairs = [p if isinstance(p, tuple) else (None, p) for p in params]
    else:
        raise ValueError(
            f"params must be a dict or a list, not {type(params).__name__}; use "
            "model.state_dict() or list(model.named_parameters())"
        )
    pairs = [(name, tensor) for name, tensor in pairs if tensor is not None]
    handles = [broadcast_async_(tensor, root_rank, name) for name, tensor in pairs]
    for handle in handles:
        synchronize(handle)


class _Placeholder(NamedTuple):
    """Stands for a tensor in a pickled optimizer state."""

    index: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


def _map_nested(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a copy of nested dicts, lists and tuples with changed leaves."""
    if isinstance(value, dict):
        return {k: _map_nested(v, change) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_map_nested(v, change) for v in value)
    return change(value)


def _take_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Returns value with placeholders for its tensors, which go into a list."""

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        tensors.append(leaf)
        stride = dense(leaf).stride()  # as it is sent
        return _Placeholder(len(tensors) - 1, tuple(leaf.shape), stride, leaf.dtype)

    return _map_nested(value, change)


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    """Returns the parameters in the order of their numbers in a state dict."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def _describe_state(
    optimizer: torch.optim.Optimizer,
) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """Returns an optimizer's options and state, and its tensors apart."""
    tensors: list[torch.Tensor] = []
    state = {}
    for i, p in enumerate(_parameters(optimizer)):
        if p in optimizer.state:
            state[i] = _take_tensors(dict(optimizer.state[p]), tensors)
    groups = []
    for group in optimizer.param_groups:
        options = {k: v for k, v in group.items() if k != "params"}
        groups.append(_take_tensors(options, tensors))
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    return {"state": state, "groups": groups, "sizes": sizes}, tensors


def _build_state(
    optimizer: torch.optim.Optimizer, described: dict[str, Any]
) -> list[torch.Tensor]:
    """Gives an optimizer the options and the state that root_rank described.

    Returns new tensors for the values that are still to be received.
    """
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    if sizes != described["sizes"]:
        raise ValueError(
            f"the optimizer has parameter groups of {sizes} parameters, that of "
            f"the root rank of {described['sizes']}"
        )
    tensors: dict[int, torch.Tensor] = {}

    def fill(value: Any, device: torch.device) -> Any:
        if isinstance(value, _Placeholder):
            made = torch.empty_strided(
                value.shape, value.stride, dtype=value.dtype, device=device
            )
            tensors[value.index] = made
            return made
        return value

    for i, p in enumerate(_parameters(optimizer)):
        if i not in described["state"]:
            optimizer.state.pop(p, None)
            continue
        state = {}
        for key, value in described["state"][i].items():
            # A count of steps is kept on the CPU, whatever the parameter's device.
            single = isinstance(value, _Placeholder) and value.shape == ()
            device = torch.device("cpu") if single else p.device
            state[key] = _map_nested(value, lambda v, d=device: fill(v, d))
        optimizer.state[p] = state
    for group, options in zip(optimizer.param_groups, described["groups"]):
        group.update(_map_nested(options, lambda v: fill(v, torch.device("cpu"))))
    return [tensors[i] for i in range(len(tensors))]


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
) -> None:
    """Copies root_rank's optimizer state and options, such as lr, to all ranks.

    optimizer: of the same class and with the same parameters on all ranks; it
               may be a DistributedOptimizer.  ValueError for LBFGS.
    model:     not needed; accepted for programs that give it.

    A state that is still empty on root_rank is empty on all ranks afterwards;
    no step is taken to fill it.  Parameters that have no gradient then get
    one of zeros, on which programs for Horovod may rely.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("the state of torch.optim.LBFGS cannot be broadcast")
    described, tensors = None, []
    if rank() == root_rank:
        described, tensors = _describe_state(optimizer)
    described = broadcast_object(described, root_rank, name="optimizer_state")
    if rank() != root_rank:
        tensors = _build_state(optimizer, described)
    handles = [
        broadcast_async_(tensor, root_rank, f"optimizer_state.{i}")
        for i, tensor in enumerate(tensors)
    ]
    for handle in handles:
        synchronize(handle)
    if described["state"]:
        return
    for p in _parameters(optimizer):
        if p.requires_grad and p.grad is None:
            p.grad = torch.zeros_like(p)
