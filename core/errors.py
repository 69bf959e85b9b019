"""The base class of the errors that are reported to the user in a line or two. Any other exception is a bug."""

from __future__ import annotations


class CoevoError(Exception):
    """An error that the user can cause or fix. The message says what is wrong and what was expected."""
