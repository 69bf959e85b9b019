"""How a training that hangs is noticed: nothing that its processes write has changed for too long."""

from __future__ import annotations

from core.waiting import clock


class Silence:
    """The time since what is observed of a training last changed. It is looked at again and again."""

    def __init__(self, longest_s: float) -> None:
        self.longest_s = longest_s
        self._seen: object = None
        self._since = self._looked = clock.now()

    def is_too_long(self, seen: object) -> bool:
        """Whether `seen` has been the same for more than `longest_s` seconds. If so, the time begins anew.

        If nobody looked for so long, because this process was suspended, the training gets the time again.
        """
        now = clock.now()
        was_away, self._looked = now - self._looked > self.longest_s, now
        too_long = not was_away and seen == self._seen and now - self._since > self.longest_s
        if was_away or too_long or seen != self._seen:
            self._seen, self._since = seen, now
        return too_long
