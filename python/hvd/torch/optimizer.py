# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: reduces gradients while the backward pass goes on.

As soon as autograd has a parameter's gradient, a hook issues its allreduce,
named after the parameter, in place.  The library works on it beside the rest of
the backward pass; step() waits for all of them and then takes the step of the
wrapped optimizer.  The state of one parameter is a _Slot.

The instance is of a new class derived from that of the wrapped optimizer, into
which the methods of _Reducing or _ReducingDeltas, and of _Hooked, are copied, so
that the class of the wrapped optimizer comes next in the method resolution order.
"""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from contextlib import contextmanager
from typing import Any, Callable, Iterable, Iterator

import torch

from hvd import _hvd
from hvd.common import (
    Adasum,
    Average,
    Ordinals,
    ProcessSet,
    after_change,
    global_process_set,
    is_elastic,
    size,
)
from hvd.torch.compression import Compression, wire_for
from hvd.torch.functions import broadcast_object
from hvd.torch.handle import full_name, stream_of
from hvd.torch.reduce import sparse_allreduce_async

# What makes the names of unnamed parameters differ between optimizers.
_ordinals = Ordinals()

_TOO_MANY = (
    "more backward passes than backward_passes_per_step before step(); increase "
    "backward_passes_per_step to accumulate gradients"
)
_ZEROED_IN_FLIGHT = (
    "zero_grad() between backward() and step() or synchronize(): the gradients "
    "are still being reduced"
)


_all: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()


def _enter_world() -> None:
    """Tells all optimizers that this rank has come to another world."""
    for optimizer in list(_all):
        optimizer._enter_world()


after_change(_enter_world)


def _may_have_peers() -> bool:
    """Tells whether there are other ranks now or, in an elastic job, later."""
    return size() > 1 or is_elastic() or os.environ.get("HOROVOD_ELASTIC") == "1"


class _Slot:
    """What the optimizer knows of one parameter between two steps."""

    __slots__ = (
        "param",
        "name",
        "full",
        "wire",
        "delay",
        "work",
        "group",
        "sparse_dim",
    )

    def __init__(
        self, param: torch.nn.Parameter, name: str, delay: int, compression: type
    ):
        self.param = param
        self.name = name
        self.full = full_name("allreduce", name)
        self.wire = wire_for(compression, param.dtype)
        self.delay = delay  # backward passes until the gradient goes out
        self.work: Any = None  # a request, a _Finish, or a function that waits
        self.group: _Group | None = None
        self.sparse_dim = 0  # of the last gradient; 0: it was dense


class _Group:
    """Parameters whose gradients are reduced as one operation."""

    __slots__ = ("slots", "name", "ready", "work")

    def __init__(self, slots: list[_Slot]):
        self.slots = slots
        self.name = full_name("grouped_allreduce", slots[0].name)
        self.ready = 0
        self.work: Any = None


class _Finish:
    """An operation whose result must be put into a gradient afterwards."""

    __slots__ = ("request", "put")

    def __init__(self, request: Any, put: Callable[[Any], None]):
        self.request = request
        self.put = put


# ---- Names and groups --------------------------------------------------


def _check_named(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[Any] | None,
    process_set: ProcessSet,
) -> list[tuple[str, torch.nn.Parameter]]:
    """Returns a name for each parameter; ValueError if one is missing or twice."""
    if named_parameters is None:
        ordinal = _next_ordinal(process_set)
        return [
            (_noname(ordinal, i, j), p)
            for i, group in enumerate(optimizer.param_groups)
            for j, p in enumerate(group["params"])
        ]
    named = list(named_parameters)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in named):
        raise ValueError(
            "named_parameters must be a sequence of pairs (name, parameter), such "
            "as model.named_parameters()"
        )
    seen: set[str] = set()
    twice = {name for name, _ in named if name in seen or seen.add(name)}
    if twice:
        raise ValueError(
            "named_parameters has names that are not unique: "
            + ", ".join(sorted(twice))
        )
    known = {id(p) for _, p in named}
    missing = [
        f"parameter {j} of group {i} {tuple(p.shape)}"
        for i, group in enumerate(optimizer.param_groups)
        for j, p in enumerate(group["params"])
        if id(p) not in known
    ]
    if missing:
        raise ValueError(
            "named_parameters lacks parameters of the optimizer: " + ", ".join(missing)
        )
    return named


def _next_ordinal(process_set: ProcessSet) -> int:
    """Returns a number that no optimizer of these ranks has used for a name."""
    return _ordinals.take(process_set)


def _noname(ordinal: int, group: int, index: int) -> str:
    """Makes the name of a parameter that the program gave none."""
    name = f"allreduce.noname.{group}.{index}"
    return name if ordinal == 0 else f"{name}.{ordinal}"


def _check_groups(groups: Any) -> None:
    """Raises ValueError unless groups is a positive number or lists of tensors."""
    if groups is None:
        return
    if not isinstance(groups, list):
        if not isinstance(groups, int) or groups <= 0:
            raise ValueError(
                "groups must be a positive number or a list of lists of tensors"
            )
        return
    seen: set[int] = set()
    for group in groups:
        for p in group:
            if not isinstance(p, torch.Tensor):
                raise ValueError("groups must contain tensors")
            if id(p) in seen:
                raise ValueError("a parameter may be in one of the groups only")
            seen.add(id(p))


def _make_groups(
    slots: list[_Slot], groups: Any, process_set: ProcessSet
) -> list[_Group]:
    """Divides slots into groups, alike on all ranks: in the order of one.

    groups: as in DistributedOptimizer, checked; not None.
    """
    root = min(process_set.ranks) if process_set.ranks else 0
    order = broadcast_object([s.name for s in slots], root, process_set=process_set)
    place = {name: i for i, name in enumerate(order)}
    unknown = [s.name for s in slots if s.name not in place]
    if unknown or len(order) != len(slots):
        raise ValueError(
            f"rank {root} has other parameters that need a gradient: here "
            f"{len(slots)}, there {len(order)}"
        )
    slots = sorted(slots, key=lambda s: place[s.name])
    if isinstance(groups, int):
        parts = min(groups, len(slots))
        bounds = [len(slots) * i // parts for i in range(parts + 1)]
        chunks = [slots[a:b] for a, b in zip(bounds, bounds[1:])]
    else:
        by_id = {id(s.param): s for s in slots}
        chunks = [[by_id[id(p)] for p in g if id(p) in by_id] for g in groups]
        for chunk in chunks:
            chunk.sort(key=lambda s: place[s.name])
        listed = {id(s) for chunk in chunks for s in chunk}
        chunks += [[s] for s in slots if id(s) not in listed]
    made = []
    for chunk in filter(None, chunks):
        group = _Group(chunk)
        for slot in chunk:
            slot.group = group
        made.append(group)
    return made


def _on_gradient(param: torch.nn.Parameter, hook: Callable[..., None]) -> Any:
    """Calls hook whenever backward has added to a parameter's gradient.

    Returns what must be kept as long as the hook is to work.
    """
    if hasattr(param, "register_post_accumulate_grad_hook"):
        return param.register_post_accumulate_grad_hook(hook)
    node = param.expand_as(param).grad_fn.next_functions[0][0]
    node.register_hook(hook)
    return node


# ---- Gradients ---------------------------------------------------------


class _Hooked:
    """The methods that all optimizers with hooks on gradients have.

    Those of derived classes: _make_hook() returns the function that autograd calls
    when a gradient is ready.
    """

    def _hvd_start(self, named, compression, passes, op, pset):
        """Sets what hooks need; _active tells whether there are any."""
        self.backward_passes_per_step = passes
        self.op = op
        self.process_set = pset
        self._compression = compression
        self._parameter_names = {p: name for name, p in named}
        self._slots: dict[torch.nn.Parameter, _Slot] = {}
        self._units: list[_Group] = []
        self._keep: list[Any] = []
        self._should_synchronize = True
        self._active = bool(pset.included()) and _may_have_peers()
        self._enter_world()
        _all.add(self)

    def _add_slots(self):
        """Makes slots and hooks for parameters that have none yet."""
        for i, group in enumerate(self.param_groups):
            for j, p in enumerate(group["params"]):
                if not p.requires_grad or p in self._slots:
                    continue
                name = self._parameter_names.get(p)
                if name is None:
                    name = _noname(_next_ordinal(self.process_set), i, j)
                    self._parameter_names[p] = name
                slot = _Slot(p, name, self.backward_passes_per_step, self._compression)
                self._slots[p] = slot
                self._keep.append(_on_gradient(p, self._make_hook(slot)))

    def _forget(self):
        """Returns to the state after a step: nothing in flight."""
        self._busy = False
        for group in self._units:
            group.work = None
            group.ready = 0
        for slot in self._slots.values():
            slot.work = None
            slot.delay = self.backward_passes_per_step

    def _enter_world(self):
        """Begins in another world: what was in flight in the last one has ended."""
        number = self.process_set.process_set_id
        self._number = -1 if number is None else number  # -1: an error says so
        self._synchronized = False
        self._forget()
        for param in self._slots:
            if param.grad is not None:
                param.grad.detach_().zero_()

    def zero_grad(self, *args, **kwargs):
        """Clears the gradients; takes the wrapped optimizer's arguments."""
        if self._busy:
            raise AssertionError(_ZEROED_IN_FLIGHT)
        return self._hvd_base.zero_grad(self, *args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        """Loads a state of the wrapped optimizer; begins to count passes anew."""
        self._synchronized = False
        self._should_synchronize = True
        self._forget()
        return self._hvd_base.load_state_dict(self, *args, **kwargs)

    def set_backward_passes_per_step(self, passes):
        """Changes how many backward passes a step has; begins to count anew."""
        self.backward_passes_per_step = passes
        for slot in self._slots.values():
            slot.delay = passes

    def add_param_group(self, *args, **kwargs):
        """Adds a group of parameters, whose gradients are reduced, too."""
        self._hvd_base.add_param_group(self, *args, **kwargs)
        if self._active:
            self._add_slots()


class _Reducing(_Hooked):
    """The methods of an optimizer that reduces gradients."""

    def _hvd_setup(self, named, compression, passes, op, factor, groups, dense, pset):
        """Prepares this optimizer; registers hooks where ranks share the work."""
        self._hvd_start(named, compression, passes, op, pset)
        self.gradient_predivide_factor = factor
        self.sparse_as_dense = dense
        self._groups = groups
        if not self._active:
            return
        self._scales = (1.0 / factor, factor)
        self._add_slots()
        if groups is not None and self._slots:
            slots = list(self._slots.values())
            self._units = _make_groups(slots, groups, pset)

    def _make_hook(self, slot):
        """Returns the function that autograd calls when a gradient is ready."""
        param = slot.param
        issue = self._issue

        def hook(*_):
            if slot.delay <= 0:
                raise AssertionError(_TOO_MANY)
            self._busy = True
            slot.delay -= 1
            if slot.delay:
                return
            group = slot.group
            if group is None:
                issue(slot, param.grad)
                return
            group.ready += 1
            if group.ready == len(group.slots):
                self._issue_group(group)

        return hook

    def _issue(self, slot, grad):
        """Starts to reduce the gradient of one parameter.

        The usual gradient, dense and reduced in place, takes the short way.
        """
        if grad.requires_grad:
            raise AssertionError("a gradient that requires a gradient itself")
        wire = slot.wire
        if wire is None or grad.is_sparse:
            slot.work = self._issue_other(slot, grad)
            return
        pre, post = self._scales
        slot.work = _hvd.allreduce_async(
            grad,
            grad,
            self.op,
            pre,
            post,
            wire,
            0,
            slot.full,
            self._number,
            0,
            stream_of(grad) if grad.is_cuda else None,
        )

    def _issue_other(self, slot, grad):
        """Starts to reduce a sparse gradient, or one with a user's compressor."""
        param, wire = slot.param, slot.wire
        if grad.is_sparse and slot.sparse_dim and grad._nnz() == 0:
            # zero_grad() has changed the number of its sparse dimensions, which
            # must be the same on all ranks.
            grad = _no_entries(param, slot.sparse_dim)
        slot.sparse_dim = grad.sparse_dim() if grad.is_sparse else 0
        if grad.is_sparse and not self.sparse_as_dense:
            wait = sparse_allreduce_async(
                grad, slot.name, self.op, process_set=self.process_set
            )
            return lambda: setattr(param, "grad", wait())
        sent = grad.to_dense() if grad.is_sparse else grad
        ctx = None
        if wire is None:
            sent, ctx = self._compression.compress(sent)
            sent = sent.contiguous()

        def put(result):
            if wire is None:
                result = self._compression.decompress(result, ctx)
            _put_gradient(slot, result)

        start = _hvd.allreduce_async
        request = self._reduce(start, sent, wire, slot.full, stream_of(sent))
        return _Finish(request, put)

    def _reduce(self, start, sent, wire, name, stream):
        """Calls start, a function of the library, to reduce in place."""
        pre, post = self._scales
        return start(
            sent,
            sent,
            self.op,
            pre,
            post,
            wire or 0,
            0,
            name,
            self._number,
            0,
            stream,
        )

    def _issue_group(self, group):
        """Starts to reduce the gradients of a group; missing ones are zeros."""
        grads = [self._present_grad(slot) for slot in group.slots]
        for slot, grad in zip(group.slots, grads):
            slot.sparse_dim = grad.sparse_dim() if grad.is_sparse else 0
            if grad.is_sparse and not self.sparse_as_dense:
                raise ValueError(
                    f"{slot.name}: a sparse gradient cannot be in a group; use "
                    "sparse_as_dense=True"
                )
        sent = [g.to_dense() if g.is_sparse else g for g in grads]
        wires = {slot.wire for slot in group.slots}
        wire = wires.pop() if len(wires) == 1 else None
        ctxs = [None] * len(sent)
        if wire is None:
            packed = [self._compression.compress(t) for t in sent]
            sent = [t.contiguous() for t, _ in packed]
            ctxs = [ctx for _, ctx in packed]

        def put(results):
            for slot, result, ctx in zip(group.slots, results, ctxs):
                if wire is None:
                    result = self._compression.decompress(result, ctx)
                _put_gradient(slot, result)

        start = _hvd.grouped_allreduce_async
        request = self._reduce(start, sent, wire, group.name, stream_of(sent[0]))
        in_place = all(t is g for t, g in zip(sent, grads))
        group.work = request if in_place else _Finish(request, put)

    def _present_grad(self, slot):
        """Returns a parameter's gradient; makes one of zeros if it has none."""
        param = slot.param
        if param.grad is None:
            if slot.sparse_dim:
                param.grad = _no_entries(param, slot.sparse_dim)
            else:
                param.grad = torch.zeros_like(param)
        return param.grad

    def _issue_rest(self):
        """Starts to reduce what the hooks have not: missing, unfinished ones."""
        self._add_slots()
        for group in self._units:
            if group.work is None:
                self._issue_group(group)
        for slot in self._slots.values():
            if slot.group is None and slot.work is None and slot.param.requires_grad:
                self._issue(slot, self._present_grad(slot))

    def synchronize(self):
        """Waits until all gradients are reduced; issues those that are missing.

        Parameters without a gradient get one of zeros, as another rank may have
        one.  Every rank must call it (or step()) equally often.  Raises
        HorovodInternalError when a rank has died or left.
        """
        if not self._active:
            self._synchronized = True
            return
        try:
            self._issue_rest()
            works = [group.work for group in self._units]
            works += [s.work for s in self._slots.values() if s.work is not None]
            _finish(works)
        finally:
            self._forget()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Makes step() not reduce the gradients again after synchronize()."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure=None):
        """Waits until all gradients are reduced, and updates the parameters.

        closure: as in the wrapped optimizer.  The gradients of each of its
                 evaluations are reduced; it must be evaluated equally often on
                 all ranks, so it should return the same loss on all.
        """
        if self._should_synchronize and (closure is None or self._busy):
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() "
                    "after optimizer.synchronize(): the gradients are reduced twice",
                    stacklevel=2,
                )
            self.synchronize()
        self._synchronized = False
        if self._hvd_scheduled is not None:
            _count_step(self._hvd_scheduled)
        return self._hvd_inner_step(closure)

    def _hvd_inner_step(self, closure):
        """Takes the wrapped optimizer's step."""
        if closure is None:
            return self._hvd_base.step(self)

        def reduced():
            loss = closure()
            if self._busy:
                self.synchronize()
                self._synchronized = False
            return loss

        return self._hvd_base.step(self, reduced)


def _finish(works: list[Any]) -> None:
    """Waits for works, and puts results where they belong."""
    requests, rest = [], []
    for work in works:
        if type(work) is _Finish:
            requests.append(work.request)
            rest.append(work)
        elif callable(work):
            rest.append(work)
        else:
            requests.append(work)
    _hvd.wait_all(requests)
    with torch.no_grad():
        for work in rest:
            if type(work) is _Finish:
                work.put(work.request.result())
            else:
                work()


def _put_gradient(slot: _Slot, result: torch.Tensor) -> None:
    """Makes a reduced dense tensor the gradient of a parameter."""
    param = slot.param
    if slot.sparse_dim:
        param.grad = result.to_sparse(slot.sparse_dim)
    elif result is not param.grad:
        param.grad.copy_(result)


def _no_entries(param: torch.nn.Parameter, sparse_dim: int) -> torch.Tensor:
    """Makes a sparse gradient that is zero everywhere."""
    indices = torch.empty((sparse_dim, 0), dtype=torch.int64, device=param.device)
    values = param.new_empty((0, *param.shape[sparse_dim:]))
    return torch.sparse_coo_tensor(indices, values, param.shape)


def _count_step(optimizer: torch.optim.Optimizer) -> None:
    """Tells a scheduler that was made for optimizer that a step was taken."""
    if hasattr(optimizer, "_step_count"):
        optimizer._step_count += 1
    optimizer._opt_called = True


# ---- Adasum ------------------------------------------------------------


class _ReducingDeltas(_Hooked):
    """The methods of an optimizer that combines steps of the ranks by Adasum.

    When a gradient is ready, the wrapped optimizer takes its step for this
    parameter alone.  The change is reduced, and step() adds it to the value
    from before; until then the parameter holds the change.
    """

    def _hvd_setup(self, named, compression, passes):
        """Prepares this optimizer and registers the hooks."""
        self._hvd_start(named, compression, passes, Adasum, global_process_set)
        self._start: dict[torch.nn.Parameter, torch.Tensor] = {}
        self._add_slots()

    def _make_hook(self, slot):
        """Returns the function that autograd calls when a gradient is ready."""

        def hook(*_):
            if slot.delay <= 0:
                raise AssertionError(_TOO_MANY)
            self._busy = True
            slot.delay -= 1
            if slot.delay == 0:
                self._issue(slot)

        return hook

    @contextmanager
    def _only(self, param: torch.nn.Parameter) -> Iterator[None]:
        """Makes the wrapped optimizer see one parameter only."""
        whole = [group["params"] for group in self.param_groups]
        for group, params in zip(self.param_groups, whole):
            has = any(p is param for p in params)
            group["params"] = [param] if has else []
        try:
            yield
        finally:
            for group, params in zip(self.param_groups, whole):
                group["params"] = params

    def _issue(self, slot):
        """Takes the step of one parameter and starts to reduce the change."""
        param = slot.param
        if param not in self._start:
            self._start[param] = torch.empty_like(param)
        start = self._start[param]
        if param.grad is None:
            param.grad = torch.zeros_like(param)
        with torch.no_grad():
            start.copy_(param)
            with self._only(param):
                self._hvd_base.step(self)
            param.sub_(start)
        sent, ctx = param.detach(), None
        if slot.wire is None:
            sent, ctx = self._compression.compress(sent)
        request = _hvd.allreduce_async(
            sent,
            sent,
            Adasum,
            name=slot.full,
            stream=stream_of(sent),
        )

        def put(result):
            if slot.wire is None:
                result = self._compression.decompress(result, ctx)
            param.copy_(start.add_(result))

        slot.work = _Finish(request, put)

    def synchronize(self):
        """Does nothing: the parameters are reduced in step()."""

    def skip_synchronize(self):
        """Raises AssertionError: Adasum has no gradients to synchronize."""
        raise AssertionError("skip_synchronize() is not possible with op=Adasum")

    def step(self, closure=None):
        """Waits until all changes are reduced, and applies them."""
        loss = None if closure is None else closure()
        self._add_slots()
        try:
            for slot in self._slots.values():
                if slot.work is None and slot.param.requires_grad:
                    self._issue(slot)
            works = [slot.work for slot in self._slots.values()]
            _finish([work for work in works if work is not None])
        finally:
            self._forget()
        if self._hvd_scheduled is not None:
            _count_step(self._hvd_scheduled)
        return loss


# ---- The factory -------------------------------------------------------


# Only the wrapped step() is profiled and calls torch's hooks.
_Reducing.step.hooked = True
_ReducingDeltas.step.hooked = True


def _derive(optimizer: torch.optim.Optimizer, methods: type) -> torch.optim.Optimizer:
    """Makes an optimizer of a new class with the same state and options.

    It shares the parameter groups and the state with the given one, so that a
    scheduler that was made for that one works.
    """
    body = {**vars(_Hooked), **vars(methods)}
    del body["__dict__"], body["__weakref__"]
    base = optimizer.__class__
    if "_hvd_base" in vars(base):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    if "horovod" in sys.modules:
        # PyTorch Lightning looks for this word to know such an optimizer.
        body["__module__"] = "horovod.torch.optimizer"
    body["_hvd_base"] = base
    body["_hvd_scheduled"] = None
    made = object.__new__(type(base.__name__, (base,), body))
    made.__dict__.update(optimizer.__dict__)
    if made.__dict__.pop("step", None) is not None:
        made._hvd_scheduled = optimizer
    return made


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
    compression: type = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list[list[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    """Returns an optimizer that reduces gradients over the ranks before a step.

    optimizer:   computes the steps.  Its state and parameter groups are shared
                 with the result, which is of a class derived from its own.
    named_parameters:
                 pairs such as model.named_parameters(), a superset of the
                 parameters in optimizer; the same names on all ranks.  Without
                 them, names are made of the positions.
    compression: how gradients travel; see hvd.torch.Compression.
    backward_passes_per_step:
                 how many backward passes add to a gradient before it is
                 reduced; the sum is not divided by it.
    op:          Average, Sum, Min, Max, Product; Adasum combines the steps of
                 the ranks instead of their gradients.
    gradient_predivide_factor:
                 with Average, gradients are divided by it before the sum, and
                 the sum is divided by size / factor.
    num_groups:  deprecated, as groups.
    groups:      gradients that are reduced as one operation: a number of groups
                 of equal size, or lists of parameters; the others alone.
    sparse_as_dense:
                 reduces sparse gradients as dense ones; else their entries are
                 gathered, and a rank that never had a sparse gradient for the
                 parameter must not leave it out.
    process_set: the ranks that reduce; on others the result does not reduce.

    Raises ValueError for arguments that do not fit or an optimizer made by this
    function, and NotImplementedError for Adasum in a process set.  Every rank
    must make it at the same place among its operations if groups are used, as
    their order is taken from one rank.  backward() does not block, and step()
    waits.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=hvd.Average")
    if num_groups != 0:
        warnings.warn(
            "num_groups= is deprecated; use groups=", DeprecationWarning, stacklevel=2
        )
        groups = num_groups if groups is None else groups
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be at least 1")
    _check_groups(groups)
    named = _check_named(optimizer, named_parameters, process_set)
    if op == Adasum and _may_have_peers():
        if process_set.process_set_id != 0:
            raise NotImplementedError("Adasum works in the global process set only")
        made = _derive(optimizer, _ReducingDeltas)
        made._hvd_setup(named, compression, backward_passes_per_step)
        return made
    made = _derive(optimizer, _Reducing)
    made._hvd_setup(
        named,
        compression,
        backward_passes_per_step,
        op,
        gradient_predivide_factor,
        groups,
        sparse_as_dense,
        process_set,
    )
    return made
