"""How requests to other processes are repeated: after which failures, how often, for how long, with which pauses."""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass, field
from email.utils import mktime_tz, parsedate_tz

from core.waiting import clock

_FIRST_PAUSE_S, _FACTOR, _LONGEST_PAUSE_S = 0.2, 2.0, 10.0
_LEAST_SHARE = 0.5  # of a pause that is waited at least; the rest is random, so that clients do not come back together
_FINAL = frozenset({501, 505})  # not implemented, HTTP version not supported: the next answer would be the same
_SECONDS = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?")
_random = random.Random()  # not the module's own state, which a program may have seeded


def is_transient(status: int) -> bool:
    """Whether a request that was answered with this HTTP status may succeed if it is sent again.

    409 (Conflict) is among them, as in OpenAI's client; our own applications answer it while they swap checkpoints.
    """
    return status in (408, 409, 429) or (status >= 500 and status not in _FINAL)


def seconds_of(retry_after: str | None) -> float:
    """The seconds that a server asks for in a Retry-After header, which has their number or a date; 0 without one."""
    value = (retry_after or "").strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        date = parsedate_tz(value)
        return 0.0 if date is None else max(0.0, mktime_tz(date) - time.time())
    except (ValueError, OverflowError):
        return 0.0


@dataclass(slots=True)
class Attempts:
    """The attempts of one request, which begin now. After a failed one, `pause` waits for the time of the next.

    There are at most `most` attempts, and all of them with their pauses take at most `within_s` seconds. The pauses
    grow from `first_pause_s` to `longest_pause_s`, and take at most `waiting_s` seconds together. None means no limit.
    """

    within_s: float
    most: int | None = None
    waiting_s: float | None = None
    first_pause_s: float = _FIRST_PAUSE_S
    longest_pause_s: float = _LONGEST_PAUSE_S
    _began: float = field(init=False)
    _made: int = field(default=0, init=False)
    _waited: float = field(default=0.0, init=False)  # as if no pause had been shortened

    def __post_init__(self) -> None:
        self._began = clock.now()

    @property
    def remaining_s(self) -> float:
        """The seconds that are left for the request. An attempt must not take longer."""
        return max(0.0, self._began + self.within_s - clock.now())

    def pause(self, retry_after_s: float = 0.0) -> bool:
        """Wait until the next attempt, `retry_after_s` or longer. Returns False at once if there is to be none."""
        seconds = self._next_pause(retry_after_s)
        if seconds is not None:
            clock.sleep(seconds)
        return seconds is not None

    async def async_pause(self, retry_after_s: float = 0.0) -> bool:
        """As `pause`, within an event loop."""
        seconds = self._next_pause(retry_after_s)
        if seconds is not None:
            await clock.async_sleep(seconds)
        return seconds is not None

    def _next_pause(self, retry_after_s: float) -> float | None:
        # The exponent is bounded, because a power of a request that is repeated for hours would be no float any more.
        longest = min(self.longest_pause_s, self.first_pause_s * _FACTOR ** min(self._made, 60))
        self._made += 1
        if self.most is not None and self._made >= self.most:
            return None
        if self.waiting_s is not None and self._waited + longest > self.waiting_s:
            return None
        self._waited += longest
        seconds = retry_after_s + longest * _random.uniform(_LEAST_SHARE, 1.0)
        return seconds if seconds < self.remaining_s else None
