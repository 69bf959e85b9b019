"""Errors of the store. A message names the object, what was expected of it, and what was found."""

from __future__ import annotations

from core.errors import CoevoError


class StoreError(CoevoError):
    """The store cannot do what was requested; the base class of all errors of this package."""


class NotThere(StoreError):
    """The store has no object of the given name or id."""


class RunHeld(StoreError):
    """Another process works on the run."""


class StageHeld(StoreError):
    """Another owner holds a live lease on the stage or on its run."""


class LeaseLost(StoreError):
    """The owner no longer holds the stage or the run.

    Another owner claimed it after the lease had expired, or the stage is finished, or the run was released.
    """


class CheckpointError(StoreError):
    """A checkpoint's folder cannot be published, or it differs from what was published."""


class AlreadyAcknowledged(StoreError):
    """Somebody has acknowledged this alert before; the message says who and when."""


class UnreadableSettings(StoreError):
    """This process cannot read a run's settings: they are of another version of coevo, or of a missing package."""
