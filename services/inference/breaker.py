"""Circuit breakers: a service that does not answer is left alone for a while, so that nobody waits for it again."""

from __future__ import annotations

import logging
import threading
from functools import cache

from core.asking.service import Service
from core.waiting import clock
from services.inference.client import InferenceError

log = logging.getLogger(__name__)

FAILURES_IN_A_ROW = 5  # after which a service counts as down, once a request to it has been given up too
COOL_DOWN_S = 300.0


class ServiceDown(InferenceError):
    """Raised instead of asking a service that did not answer a short while ago."""


class Breaker:
    """Knows whether a service is down. Every thread of this process reports its requests to the service here.

    A service is down if a request to it was given up and its last `FAILURES_IN_A_ROW` attempts all failed, whichever
    requests they belonged to. Then no request is sent for `COOL_DOWN_S` seconds. The first one after that is the probe:
    an answer to it ends the outage; a failure, after which it is not repeated, begins another cool-down.
    """

    def __init__(self, name: str) -> None:
        self._name, self._lock = name, threading.Lock()
        self._failures, self._reason = 0, ""
        self._ask_again_at: float | None = None  # None: the service is not down

    @property
    def is_down(self) -> bool:
        return self._ask_again_at is not None

    def admit(self) -> bool:
        """Whether the next request is the probe, which is sent alone. Raises `ServiceDown` if none may be sent."""
        with self._lock:
            if self._ask_again_at is None:
                return False
            now = clock.now()
            if now < self._ask_again_at:
                raise ServiceDown(
                    f"{self._name}: not asked, because it did not answer the last {self._failures} requests; it is "
                    f"asked again in {self._ask_again_at - now:.0f} s; the last failure was: {self._reason}"
                )
            self._ask_again_at = now + COOL_DOWN_S  # other threads do not ask meanwhile
            return True

    def answered(self) -> None:
        """The service has answered, be it with a refusal."""
        with self._lock:
            if self._ask_again_at is not None:
                log.info("%s answers again", self._name)
            self._failures, self._ask_again_at = 0, None

    def failed(self, reason: str) -> None:
        """An attempt got no answer, or the status of a server that is out of order."""
        with self._lock:
            self._failures, self._reason = self._failures + 1, reason
            if self._ask_again_at is not None:
                self._ask_again_at = clock.now() + COOL_DOWN_S

    def gave_up(self) -> None:
        """A request is not repeated any more."""
        with self._lock:
            if self._ask_again_at is not None or self._failures < FAILURES_IN_A_ROW:
                return
            self._ask_again_at = clock.now() + COOL_DOWN_S
        log.warning(
            "%s did not answer the last %d requests, so it is not asked for %g s: %s",
            self._name,
            self._failures,
            COOL_DOWN_S,
            self._reason,
        )


_of = cache(Breaker)


def breaker_of(service: Service) -> Breaker:
    """The breaker of a service in this process. A gateway may serve several models, and each has its own."""
    return _of(f"{service.url}: {service.model}")
