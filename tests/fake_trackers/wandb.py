"""A package `wandb` that fails as `$FAKE_TRACKER` says, such as "raises at each call". It first makes the file
`$FAKE_TRACKER_REACHED`. Its error has the key, as that of a careless package might."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_how, _, _when = os.environ["FAKE_TRACKER"].partition(" at ")


def _fail_at(place: str) -> None:
    if place != _when:
        return
    Path(os.environ["FAKE_TRACKER_REACHED"]).touch()
    if _how == "hangs":
        threading.Event().wait()
    if _how == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if _how == "exits":
        raise SystemExit(3)
    raise RuntimeError(f"not with the key {os.environ['WANDB_API_KEY']}")


def _nothing(*_: Any, **__: Any) -> None: ...


_fail_at("import")
Settings = _nothing


def init(**_: Any) -> SimpleNamespace:
    _fail_at("start")
    config = SimpleNamespace(update=_nothing)
    log, finish = (lambda _row: _fail_at("each call")), (lambda: _fail_at("the end"))
    return SimpleNamespace(config=config, define_metric=_nothing, log=log, finish=finish)
