"""The root of the errors that a person is told in a line or two; whatever else is raised is a bug of ours."""

from __future__ import annotations


class CoevoError(Exception):
    """Something that whoever runs coevo can cause or mend; the message says what, and what was expected."""
