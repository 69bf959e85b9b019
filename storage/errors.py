"""What can go wrong in the store. Every message names the thing and what to do about it."""

from __future__ import annotations

from core.errors import CoevoError


class StoreError(CoevoError):
    """The store cannot do what was asked; the base of all errors of this package."""


class NotThere(StoreError):
    """A thing asked for by its name that the store does not have."""


class RunHeld(StoreError):
    """Another process works on the run."""


class StageHeld(StoreError):
    """Another owner holds a live lease on the stage."""


class LeaseLost(StoreError):
    """The owner no longer holds the stage: its lease ran out and someone else claimed it, or it is finished."""


class CheckpointError(StoreError):
    """A checkpoint's folder that cannot be published or is not what was published; names the file."""


class AlreadyAcknowledged(StoreError):
    """Somebody has acknowledged this alert before; the message says who, and when."""
