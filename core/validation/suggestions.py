"""Names that are near to a mistyped one, and the error about a name that does not exist."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

_CUTOFF = 0.6  # of difflib's ratio, in which 1 is equality


def nearest(name: str, known: Collection[str], cutoff: float = _CUTOFF) -> str | None:
    """The name among `known` that is most like `name`, whatever its case; None if none is like it."""
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    matches = get_close_matches(name.lower(), by_lower_case, n=1, cutoff=cutoff)
    return by_lower_case[matches[0]] if matches else None


def did_you_mean(name: str, known: Collection[str]) -> str:
    """` (did you mean X?)`, to be put behind a name that does not exist; empty if no known name is like it."""
    suggestion = nearest(name, known)
    return "" if suggestion is None else f" (did you mean {suggestion}?)"


def no_such(what: str, known: Collection[str], name: str, otherwise: str = "") -> str:
    """The rest of an error about a name: `no such preset (did you mean demo?); expected one of demo, micro`.

    `otherwise` says what else can be given, such as ", or the path of a TOML file".
    """
    return f"no such {what}{did_you_mean(name, known)}; expected one of {', '.join(known) or 'none'}{otherwise}"
