# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the batches of all ranks, on any device.

Forward reduces count, sum and sum of squares per channel; backward reduces the
two sums that the gradient of the input needs.  Statistics are kept in float64 on
the way, so that subtracting squares does not lose the variance.
Source: Ioffe and Szegedy, Batch Normalization (ICML 2015).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from hvd import _hvd
from hvd.common import (
    Ordinals,
    ProcessSet,
    Sum,
    global_process_set,
    process_set_id,
)
from hvd.torch.handle import stream_of

# What makes the names of layers' operations differ.
_ordinals = Ordinals()


def _reduce(values: torch.Tensor, name: str, process_set: ProcessSet) -> torch.Tensor:
    """Returns the sums of values over the ranks, in place."""
    return _hvd.allreduce(
        values,
        values,
        Sum,
        name=f"allreduce.{name}",
        process_set=process_set_id(process_set),
        stream=stream_of(values),
    )


def _per_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Returns a vector with one entry per channel, shaped to go with like."""
    return values.to(like.dtype).view(1, -1, *[1] * (like.dim() - 2))


def _joint_statistics(
    x: torch.Tensor, name: str, process_set: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Returns mean and variance per channel, and the count, of all ranks."""
    channels = x.shape[1]
    mine = x.numel() // channels if channels else 0
    dims = [d for d in range(x.dim()) if d != 1]
    sums = torch.zeros(2 * channels + 1, dtype=torch.float64, device=x.device)
    if mine:
        exact = x if x.dtype == torch.float64 else x.float()
        var, mean = torch.var_mean(exact, dims, unbiased=False)
        mean, var = mean.double(), var.double()
        sums[:channels] = mean * mine
        sums[channels:-1] = (var + mean * mean) * mine
        sums[-1] = mine
    sums = _reduce(sums, name, process_set)
    total = sums[-1].item()
    if total == 0:
        raise ValueError("SyncBatchNorm: the batches of all ranks are empty")
    mean = sums[:channels] / total
    var = (sums[channels:-1] / total - mean * mean).clamp_(min=0)
    return mean, var, total


class _Normalize(torch.autograd.Function):
    """Normalises a batch by the statistics of the batches of all ranks."""

    @staticmethod
    def forward(ctx, x, weight, bias, mean, var, total, eps, name, process_set):
        scale = torch.rsqrt(var + eps)
        ctx.save_for_backward(x, weight, mean, scale)
        ctx.rest = (total, name, process_set)
        normal = (x - _per_channel(mean, x)) * _per_channel(scale, x)
        if weight is not None:
            normal = normal * _per_channel(weight, x) + _per_channel(bias, x)
        return normal

    @staticmethod
    def backward(ctx, grad):
        x, weight, mean, scale = ctx.saved_tensors
        total, name, process_set = ctx.rest
        dims = [d for d in range(x.dim()) if d != 1]
        normal = (x - _per_channel(mean, x)) * _per_channel(scale, x)
        sums = torch.cat((grad.sum(dims), (grad * normal).sum(dims)))
        grad_bias, grad_weight = sums.clone().chunk(2)
        grad_x = None
        # Whether x needs a gradient may differ between ranks only if their
        # models differ.
        if ctx.needs_input_grad[0]:
            joint = _reduce(sums.double(), f"{name}.grad", process_set) / total
            mean_grad, mean_product = joint.chunk(2)
            grad_x = grad - _per_channel(mean_grad, x)
            grad_x -= normal * _per_channel(mean_product, x)
            grad_x *= _per_channel(scale if weight is None else scale * weight, x)
        if weight is None:
            grad_weight = grad_bias = None
        return grad_x, grad_weight, grad_bias, None, None, None, None, None, None


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation whose statistics are those of all ranks' batches.

    Takes the arguments of torch.nn.BatchNorm1d and its like, and process_set,
    the ranks that belong together.  The input has the shape (N, C, ...), with
    the same C on all ranks; N may differ and may be 0 on some.  All ranks must
    run it equally often, in training forward and backward, as both wait for
    the others; evaluation does not communicate.

    The gradients of weight and bias are those of the own batch, as
    DistributedOptimizer reduces them.  Works on the CPU and on GPUs.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
        **kwargs: Any,
    ):
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, **kwargs
        )
        self.process_set = process_set
        self._name: str | None = None

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(
                f"SyncBatchNorm needs an input of at least 2 dimensions, not "
                f"{input.dim()}"
            )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Returns the normalised input; see the class."""
        self._check_input_dim(input)
        use_batch = self.training or not self.track_running_stats
        if not use_batch:
            return F.batch_norm(
                input,
                self.running_mean,
                self.running_var,
                self.weight,
                self.bias,
                False,
                0.0,
                self.eps,
            )
        if self._name is None:
            # Not before, since a rank may make layers that it does not train.
            number = _ordinals.take(self.process_set)
            self._name = f"sync_batch_norm.{number}"
        with torch.no_grad():
            mean, var, total = _joint_statistics(
                input.detach(), self._name, self.process_set
            )
            if self.training and self.track_running_stats:
                self._track(mean, var, total)
        return _Normalize.apply(
            input,
            self.weight,
            self.bias,
            mean,
            var,
            total,
            self.eps,
            self._name,
            self.process_set,
        )

    def _track(self, mean: torch.Tensor, var: torch.Tensor, total: float) -> None:
        """Moves the running statistics towards those of this batch."""
        self.num_batches_tracked.add_(1)
        if self.momentum is None:
            share = 1.0 / float(self.num_batches_tracked)
        else:
            share = self.momentum
        unbiased = var * (total / max(total - 1, 1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)
