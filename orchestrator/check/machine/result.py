"""What a check examines and what it finds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.errors import CoevoError
from core.settings.config import RunConfig
from orchestrator.installation.home import Home, NotUp, Services
from orchestrator.installation.ports import Ports

_PORTS = Ports()

Status = Literal["ok", "warning", "fault", "-"]  # "-": the check does not apply here, and the detail says why


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found, and what to do about it. Only a fault keeps the services or a run from starting."""

    status: Status
    detail: str
    remedy: str | None = None


def ok(detail: str) -> Finding:
    return Finding("ok", detail)


def skipped(why: str) -> Finding:
    return Finding("-", why)


class CheckFailed(CoevoError):
    """What a check found is a fault. `remedy` says what to do; None: the message itself says it."""

    def __init__(self, detail: str, remedy: str | None = None) -> None:
        super().__init__(detail)
        self.remedy = remedy


def existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def free_bytes(path: Path) -> int:
    """The free bytes of the disk on which `path` is or will be."""
    return shutil.disk_usage(existing(path)).free


@dataclass(frozen=True, slots=True)
class Subject:
    """What the checks examine: this machine, a home with its services and, with `config`, what a run needs."""

    home: Home
    config: RunConfig | None = None
    ports: Ports = _PORTS
    free: Callable[[Path], int] = free_bytes

    @property
    def services(self) -> Services | None:
        """The services that are recorded or that the environment names; None if there are none."""
        try:
            return self.home.services()
        except NotUp:
            return None
