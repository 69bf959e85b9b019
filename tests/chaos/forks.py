"""Calls in forks of a process that has imported everything. It has no thread, and its forks may fork themselves."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_FORKSERVER = multiprocessing.get_context("forkserver")


def in_a_fork(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Call the function in a process of its own. Raises what it raises."""
    _FORKSERVER.set_forkserver_preload(["tests.chaos.scripted_faults"])
    with ProcessPoolExecutor(1, mp_context=_FORKSERVER) as process:
        return process.submit(function, *args, **kwargs).result()
