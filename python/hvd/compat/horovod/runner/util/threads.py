# SPDX-License-Identifier: Apache-2.0
"""Functions in threads of their own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

__all__ = ["in_thread", "on_event"]


def in_thread(
    target: Callable,
    args: tuple = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Calls a function in a new thread, which has been started, and return the thread.

    Args:
        target: the function.
        args: its arguments, a tuple; else ValueError.
        name: the thread's name.
        daemon: whether Python may exit while the thread runs.
        silent: whether to drop the function's exceptions.
    """
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args)}; write (arg,)")

    def call():
        with contextlib.suppress(Exception) if silent else contextlib.nullcontext():
            target(*args)

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable,
    args: tuple = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Calls a function in a thread when an event is set.

    Args:
        event: the event that is waited for.
        func, args, daemon, silent: as for :func:`in_thread`.
        stop: an event that ends the wait; it is looked at each
            ``check_stop_interval_s`` seconds.  Without it the thread must be a daemon.
    """
    if not daemon and stop is None:
        raise ValueError("a thread that is no daemon needs stop")

    def wait():
        if stop is None:
            event.wait()
        while stop is not None and not event.wait(check_stop_interval_s):
            if stop.is_set():
                return
        if stop is None or not stop.is_set():
            func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)
