"""One run of a campaign: processes work on it one after another, and all but the last are killed."""

from __future__ import annotations

import math
import random
import signal
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.installation.home import Home
from storage import queries
from storage.session import open_store
from tests.chaos.attempts import Attempt, Fork
from tests.chaos.outcome import Outcome
from tests.chaos.small_run import NAME
from tests.chaos.trace import BEGINS_WORK, Strike, Trace, redone
from tests.chaos.victims import MAY_END_THE_RUN, ODDS, OF_A_WHOLE_RUN, OF_THE_RUN, Victim, bring_back, kill_one

PATIENCE_S = 300.0  # after which a process hangs
_TAKEN_OVER_S = 20.0  # for which a suspended process stays so if the next one does not come to work
_FLOW_STARTS_S = 10.0  # in which a flow run's process has begun to work
_RUNNER_INSTEAD = 0.15  # how often the runner is killed, and not the process of its flow run
_LOG_LINES = 12


@dataclass(frozen=True)
class Plan:
    """How the kills are chosen."""

    kills: int
    victims: Collection[Victim]
    latest_s: float  # a process that is killed at a random time is killed within this
    hits_per_kill: int  # fault points that a process comes to, in the mean, before it is killed
    begin_flow: Callable[[int], Attempt] | None  # has the flow runner work on the run


class KilledRun:
    """Works on the run until it has ended, and kills in between while the plan has kills left."""

    def __init__(
        self,
        home: Home,
        work: Callable[[bool], object],
        plan: Plan,
        outcome: Outcome,
        rng: random.Random,
        trace: Trace,
        log: Path,
        strikes: Sequence[Strike] = (),
    ) -> None:
        """With `strikes`, each process in turn gets one of these, and no other is killed."""
        self._home, self._plan, self._outcome, self._rng = home, plan, outcome, rng
        self._trace, self._log, self._number = trace, log, 0
        self._strikes, self._by_chance = deque(strikes), not strikes
        self._by_runner = self._is_drawn("flow") and plan.begin_flow is not None
        self.own_processes = not self._by_runner and self._is_drawn("trainer")
        self._work = partial(work, self.own_processes)

    def _is_drawn(self, victim: Victim) -> bool:
        """Whether all processes of this run are of the victim's kind."""
        return self._by_chance and victim in self._plan.victims and self._rng.random() < ODDS[victim]

    def to_its_end(self) -> None:
        """It ends early at the first violation."""
        before, ended = len(self._outcome.violations), None
        while len(self._outcome.violations) == before and (ended is None or ended.code != 0):
            strike, after_s, others = self._next()
            attempt: Attempt
            if self._by_runner and self._outcome.kills < self._plan.kills:
                attempt = self._flow_killed()
            elif strike is not None and strike.signal == signal.SIGSTOP:
                attempt = self._taken_over(strike)
            else:
                attempt = self._killed(strike, after_s, others)
            ended = attempt.poll()
            if ended is None:
                attempt.end_hanging()
                self._outcome.violated(f"it hangs:\n{last_lines(self._log, 60)}")
        self._outcome.redone += redone(self._trace.hits())

    def _next(self) -> tuple[Strike | None, float, list[Victim]]:
        """What happens to the next process of the run: a signal at a fault point, or None if it is killed at a random
        time. Also a random time in seconds, and the other processes that are killed then."""
        rng, plan = self._rng, self._plan
        after_s = rng.uniform(0, plan.latest_s)
        if not self._by_chance:
            return self._strikes.popleft() if self._strikes else None, math.inf, []
        if self._outcome.kills >= plan.kills:
            return None, math.inf, []
        if "suspended" in plan.victims and rng.random() < ODDS["suspended"]:
            return Strike(self._some_hits(), working=True, signal=signal.SIGSTOP), after_s, []
        left_out = (*OF_THE_RUN, *OF_A_WHOLE_RUN)
        others = [victim for victim in ODDS if victim in plan.victims and victim not in left_out]
        others = [victim for victim in others if rng.random() < ODDS[victim]]
        others += ["trainer"] if self.own_processes else []
        choice = rng.random()
        strike = None if choice < 0.2 else Strike(self._some_hits(), working=choice >= 0.4)
        return strike, after_s, others

    def _killed(self, strike: Strike | None, after_s: float, others: list[Victim]) -> Attempt:
        """A process that is killed, at a fault point or after some time, unless it ends before. Others are killed after
        that time too."""
        struck = list[Victim]()
        attempt = self._begin(strike)

        def strike_when_it_is_time() -> bool:
            if attempt.seconds > after_s and attempt.poll() is None:
                if others and kill_one(self._home, victim := others.pop(), self._rng):
                    self._outcome.count(victim)
                    struck.append(victim)
                    bring_back(self._home)
                elif strike is None:
                    attempt.kill()
            return False

        attempt.wait(PATIENCE_S, strike_when_it_is_time)
        self._note_end(attempt, may_fail=bool(MAY_END_THE_RUN & {*struck}))
        return attempt

    def _flow_killed(self) -> Attempt:
        """A process in which the flow runner works on the run, and which is killed after some time.

        Sometimes the runner is killed instead; the process then works on without it.
        """
        assert self._plan.begin_flow is not None
        self._number += 1
        attempt = self._plan.begin_flow(self._number)
        runner_instead = self._rng.random() < _RUNNER_INSTEAD
        after_s = self._rng.uniform(0, _FLOW_STARTS_S + self._plan.latest_s)
        if attempt.wait(after_s) is None:
            if runner_instead and kill_one(self._home, "runner", self._rng):
                self._outcome.count("runner")
                bring_back(self._home)
            else:
                attempt.kill()
        ended = attempt.wait(PATIENCE_S)
        if ended is not None and ended.killed:
            self._outcome.count("flow")
        elif ended is not None and ended.code != 0:
            self._outcome.violated(f"its flow run failed: {attempt.message}")
        return attempt

    def _taken_over(self, strike: Strike) -> Fork:
        """A process that takes over the run of another one, which was suspended for longer than its lease and then goes
        on. Both have ended, unless one hangs. If the first one ends before it is suspended, it is returned."""
        suspended = self._begin(strike)
        suspended.wait(PATIENCE_S, lambda: suspended.suspended)
        if not suspended.suspended:
            self._note_end(suspended, may_fail=False)
            return suspended
        self._outcome.count("suspended")
        store = open_store(self._home.database)
        with store.write() as session:  # the time of its leases is over
            holder = queries.run_leases.run_holder(session, NAME)
            if holder is not None:
                queries.ledger.release_leases(session, run=NAME, owner=holder.owner)
        store.close()
        if self._by_chance:
            kill = self._rng.choice((None, Strike(self._some_hits(), working=True)))
        else:
            is_kill = self._strikes and self._strikes[0].signal == signal.SIGKILL
            kill = self._strikes.popleft() if is_kill else None
        successor = self._begin(kill)
        successor.wait(
            _TAKEN_OVER_S,
            lambda: any(hit.name == BEGINS_WORK for hit in self._trace.of_attempt(successor.number)),
        )
        suspended.go_on()
        hanging = [attempt for attempt in (successor, suspended) if attempt.wait(PATIENCE_S) is None]
        for attempt in hanging[1:]:
            attempt.end_hanging()
        if hanging:
            return hanging[0]
        self._note_end(successor, may_fail=False)
        return successor

    def _begin(self, strike: Strike | None) -> Fork:
        self._number += 1
        return Fork(self._work, self._trace, self._number, strike, self._log)

    def _note_end(self, attempt: Attempt, *, may_fail: bool) -> None:
        hits = self._trace.of_attempt(attempt.number)
        began = next((hit.at for hit in hits if hit.name == BEGINS_WORK), None)
        if attempt.number > 1 and began is not None:
            self._outcome.resumed.append(began - attempt.started)
        ended = attempt.poll()
        if ended is not None and ended.killed:
            self._outcome.count("driver", hits[-1].name if hits and attempt.strike else None)
        elif ended is not None and ended.code != 0 and not may_fail:
            self._outcome.violated(f"it failed with {ended.code}:\n{last_lines(self._log)}")

    def _some_hits(self) -> int:
        return self._rng.randint(1, 2 * self._plan.hits_per_kill)


def last_lines(log: Path, count: int = _LOG_LINES) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])
