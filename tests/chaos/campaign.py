"""A campaign: it repeats a small run, kills its processes at chosen points, and compares what is stored at its end."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from core.errors import CoevoError
from core.processes.faultpoints import FaultPoint
from orchestrator.disk import deletion
from orchestrator.disk.files import files_of_run
from orchestrator.installation.home import Home
from orchestrator.verification.run import verify_run
from storage import queries
from storage.session import open_store
from tests.chaos.attempts import Attempt, Ended, Fork
from tests.chaos.contents import Contents, contents_of, differences
from tests.chaos.killed_run import PATIENCE_S, KilledRun, Plan, last_lines
from tests.chaos.outcome import Outcome
from tests.chaos.small_run import NAME, exists
from tests.chaos.trace import BEGINS_WORK, Strike, Trace
from tests.chaos.victims import Victim

_KILLS_PER_RUN = 40
_TOO_FEW = 5  # kills for a run of their own
_RECOVERING = 3  # the first fault points of a process that goes on with a run, before it works
_LATEST = 0.2  # of the time of an uninterrupted run: when a process is killed at a random time, at the latest
_SUSPENDED_AT: tuple[FaultPoint, ...] = ("batch begun", "step begun", "stage ready to end")  # in the first run
_SHOWN = 5  # differences of a run
_LONGEST = 1_000  # characters of a difference


class ChaosError(CoevoError):
    """The campaign cannot begin: the run fails although nothing is killed."""


class Campaign:
    """Runs the same small run again and again, until `kills` processes were killed."""

    def __init__(
        self,
        home: Home,
        folder: Path,
        work: Callable[[bool], object],
        *,
        kills: int,
        seed: int,
        victims: Collection[Victim],
        report: Callable[[str], None],
        strikes: Sequence[Strike] = (),
        begin_flow: Callable[[int], Attempt] | None = None,
    ) -> None:
        """`work` begins the run `small_run.NAME` in `home`, or goes on with it, to its end; it is called in forks of
        this process. Its argument says whether the run trains in processes of its own. `folder` is for the campaign's
        files. `report` gets a line after each run. `strikes` are for the first run. `begin_flow` has the flow runner
        work on the run, for the victim "flow"; it is called with the number of the attempt."""
        self._home, self._folder, self._work, self._report = home, folder, work, report
        self._kills, self._victims, self._rng = kills, victims, random.Random(seed)
        self._strikes, self._begin_flow = strikes, begin_flow
        self._log = folder / "runs.log"
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """In the first run, a process is killed at each fault point, or it gets the `strikes`. The kills in the others
        are random. Raises `ChaosError` if the run fails although nothing is killed."""
        outcome, (stored, ended, trace) = self.outcome, self._uninterrupted(own_processes=False)
        expected = {False: stored}
        names = [hit.name for hit in trace.hits()]
        self._report(f"the uninterrupted run took {ended.seconds:.0f} s and came to {len(names)} fault points")
        plan = Plan(
            self._kills,
            self._victims,
            latest_s=ended.seconds * _LATEST,
            begin_flow=self._begin_flow,
            hits_per_kill=max(1, len(names) // _KILLS_PER_RUN),
        )
        strikes = self._strikes or self._tour(names)
        while outcome.kills < self._kills:
            reported, trace = len(outcome.violations), Trace(self._folder / f"{outcome.runs + 1}.trace")
            killed = KilledRun(self._home, self._work, plan, outcome, self._rng, trace, self._log, strikes)
            killed.to_its_end()
            if exists(self._home):  # a run that could not be begun is a violation by itself
                stored = stored_and_deleted(self._home, outcome)
                if killed.own_processes not in expected:
                    expected[killed.own_processes], *_ = self._uninterrupted(own_processes=killed.own_processes)
                different = differences(expected[killed.own_processes], stored)
                for sentence in different[:_SHOWN]:
                    outcome.violated(sentence[:_LONGEST])
                if (more := len(different) - _SHOWN) > 0:
                    outcome.violated(f"{more} more differences")
            strikes = ()
            outcome.runs += 1
            self._report(
                f"{outcome.kills} of {self._kills} kills, {outcome.runs} runs, {len(outcome.violations)} violations"
            )
            for violation in outcome.violations[reported:]:
                self._report(violation)
        return outcome

    def _uninterrupted(self, *, own_processes: bool) -> tuple[Contents, Ended, Trace]:
        """What is stored of a run that nothing interrupts."""
        trace = Trace(self._folder / f"uninterrupted{'-with-own-processes' if own_processes else ''}.trace")
        attempt = Fork(partial(self._work, own_processes), trace, 1, None, self._log)
        ended = attempt.wait(PATIENCE_S)
        if ended is None:
            attempt.end_hanging()
            raise ChaosError(f"the run hangs although nothing was killed:\n{last_lines(self._log, 60)}")
        if ended.code != 0:
            raise ChaosError(f"the run failed although nothing was killed:\n{last_lines(self._log)}")
        return stored_and_deleted(self._home, self.outcome), ended, trace

    def _tour(self, names: Sequence[FaultPoint]) -> Sequence[Strike]:
        """One kill at each fault point, in the order in which an uninterrupted run comes to them; and suspensions. If
        few kills are left after these, they are of processes that recover from one of them."""
        strikes = [Strike(1, name) for name in dict.fromkeys(names)]
        if "suspended" in self._victims:
            strikes += [Strike(1, name, signal=signal.SIGSTOP) for name in _SUSPENDED_AT]
        strikes.sort(key=lambda strike: names.index(strike.name) if strike.name in names else len(names))
        strikes = strikes[: self._kills]
        if 0 < (left := self._kills - len(strikes)) < _TOO_FEW:
            begun = 1 + next(i for i, strike in enumerate(strikes) if strike.name == BEGINS_WORK)
            for _ in range(left):
                # Not right after a suspension: if nobody takes its run over, a suspended process ends it by itself.
                after_a_kill = [i for i in range(begun, len(strikes)) if strikes[i - 1].signal == signal.SIGKILL]
                recovering = Strike(self._rng.randint(1, _RECOVERING))
                strikes.insert(self._rng.choice(after_a_kill), recovering)
        return strikes


def stored_and_deleted(home: Home, outcome: Outcome) -> Contents:
    """What is stored of the run `NAME`, which has ended. It is verified, and then deleted.

    The store is closed at the end, before the next process is forked.
    """
    store = open_store(home.database)
    with store.read() as session:
        stored = contents_of(session, home.texts, NAME)
        holder = queries.run_leases.leases(session).get(NAME)
    if holder is not None:
        outcome.violated(f"it has ended, but {holder.owner} has a lease on it")
    for check in verify_run(home, store, NAME).checks:
        for violation in check.violations:
            outcome.violated(
                f"coevo store verify: {check.name}: {violation.row}: expected {violation.expected}, stored is "
                f"{violation.stored}"
            )
    deletion.delete(home, store, NAME, evaluations=False)
    store.close()
    if files := files_of_run(home, NAME):
        outcome.violated(f"its deletion left {', '.join(str(file.path) for file in files)}")
    return stored
