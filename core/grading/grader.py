"""Whether two answers are equal: at once where text and exact numbers decide, else by a killable worker process.

math-verify's own timeouts need the main thread and never fire inside a long C call, so the parent keeps the time: a
worker that misses the deadline is killed and replaced. How equality is decided: docs/grading.md.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from queue import LifoQueue
from types import TracebackType

from core.grading.answers import normalise
from core.grading.equality import ASK, EqualityVerdict, Outcome, ask, decide
from core.grading.process import STARTUP_LIMIT, GradingError, WorkerProcess

__all__ = ["MAX_CHARS", "Comparison", "Grader", "GradingError", "grade_pairs", "process_grader"]

MAX_CHARS = 2000  # of a normalised answer; a longer one is compared as text only
_HANDFUL = 16  # pairs handed to a worker at once, for fewer switches between processes
_HANDFUL_CHARS = 12_000  # in all of them: at 4 bytes each they fit into a pipe's 64 KiB
_CACHED_PAIRS = 100_000
_MIN_MEMORY_MB = 512  # sympy itself takes a good part of it

Pair = tuple[str, str]
Progress = Callable[[int, int], None]  # comparisons done, comparisons in all


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of comparing two answers. `reason` says why a verdict is unknown; `seconds` is wall time."""

    verdict: EqualityVerdict
    reason: str | None
    seconds: float


class Grader:
    """Compares answers. A context manager; workers start when a pair first needs one, and stay until it closes.

    `deadline` is in seconds from the moment a ready worker gets a pair; `memory_mb` limits each worker's address space.
    It may be used from any thread, and from several at once.
    """

    def __init__(
        self, deadline: float = 2.0, memory_mb: int = 2048, workers: int = 1, startup_limit: float = STARTUP_LIMIT
    ) -> None:
        if deadline <= 0 or memory_mb < _MIN_MEMORY_MB or workers < 1:
            raise ValueError(
                f"Grader: expected deadline > 0, memory_mb >= {_MIN_MEMORY_MB} and workers >= 1, "
                f"got deadline={deadline}, memory_mb={memory_mb}, workers={workers}"
            )
        self._workers = [WorkerProcess(deadline, memory_mb, startup_limit) for _ in range(workers)]
        self._idle: LifoQueue[WorkerProcess] = LifoQueue()  # the last used first: few pairs start few workers
        for worker in self._workers:
            self._idle.put(worker)
        self._cache: dict[Pair, Comparison] = {}

    def __enter__(self) -> Grader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, when those at work have finished. Used again, the Grader starts new ones."""
        resting = [self._idle.get() for _ in self._workers]
        for worker in resting:
            worker.kill()
            self._idle.put(worker)

    @property
    def worker_pids(self) -> list[int]:
        """The processes that run now."""
        return [pid for worker in self._workers if (pid := worker.pid) is not None]

    def compare(self, a: str, b: str) -> Comparison:
        """One comparison; the order of the two does not matter. Errors: GradingError when no worker can be started."""
        return self.compare_many([(a, b)])[0]

    def compare_many(self, pairs: Sequence[Pair], progress: Progress | None = None) -> list[Comparison]:
        """The comparisons of `pairs`, in their order; those that need a worker are shared among all workers.

        `progress` is called from this thread with (done, in all). Errors: GradingError when no worker can be started.
        """
        results: dict[int, Comparison] = {}
        waiting: dict[Pair, list[int]] = {}
        for i, (a, b) in enumerate(pairs):
            pair, comparison = self._at_once(a, b)
            if comparison is None:
                waiting.setdefault(pair, []).append(i)
            else:
                results[i] = comparison
        _tell(progress, len(results), len(pairs))
        for pair, comparison in self._judged(list(waiting)):
            results.update(dict.fromkeys(waiting[pair], comparison))
            self._remember(pair, comparison)
            _tell(progress, len(results), len(pairs))
        return [results[i] for i in range(len(pairs))]

    def _at_once(self, a: str, b: str) -> tuple[Pair, Comparison | None]:
        """The unordered normalised pair, and its comparison where no worker is needed for it."""
        start = time.perf_counter()
        one, other = normalise(a), normalise(b)
        pair = (one, other) if one <= other else (other, one)
        if known := self._cache.get(pair):
            return pair, known
        if one != other and max(len(one), len(other)) > MAX_CHARS:
            outcome = Outcome("unknown", f"longer than {MAX_CHARS} characters")
        else:
            outcome = decide(*pair, ask)
        return pair, None if outcome == ASK else Comparison(*outcome, time.perf_counter() - start)

    def _judged(self, pairs: list[Pair]) -> Iterator[tuple[Pair, Comparison]]:
        """Each pair with its comparison by a worker, a handful of pairs at a time."""
        handfuls = _handfuls(pairs, size=max(1, min(_HANDFUL, len(pairs) // (8 * len(self._workers)))))
        if len(self._workers) == 1 or len(handfuls) == 1:
            for handful in handfuls:
                yield from zip(handful, self._judge(handful), strict=True)
            return
        threads = ThreadPoolExecutor(len(self._workers), thread_name_prefix="grading")
        try:
            for handful, comparisons in zip(handfuls, threads.map(self._judge, handfuls), strict=True):
                yield from zip(handful, comparisons, strict=True)
        finally:
            threads.shutdown(cancel_futures=True)

    def _judge(self, pairs: list[Pair]) -> list[Comparison]:
        worker = self._idle.get()
        try:
            return [Comparison(*outcome, seconds) for outcome, seconds in worker.ask(pairs)]
        finally:
            self._idle.put(worker)

    def _remember(self, pair: Pair, comparison: Comparison) -> None:
        """Keep what a worker found, unless the worker's end was somebody else's doing; the oldest goes first."""
        if comparison.reason is not None and comparison.reason.startswith("worker died"):
            return
        if len(self._cache) >= _CACHED_PAIRS:
            self._cache.pop(next(iter(self._cache)), None)
        self._cache[pair] = comparison


@cache
def process_grader() -> Grader:
    """The Grader of this process, for what follows one after the other: a worker takes seconds to start, and stays."""
    grader = Grader()
    atexit.register(grader.close)
    return grader


def grade_pairs(
    pairs: Sequence[Pair],
    *,
    deadline: float = 2.0,
    memory_mb: int = 2048,
    workers: int = 1,
    progress: Progress | None = None,
) -> list[Comparison]:
    """The comparisons of `pairs` in their order, by a Grader of their own. Errors: GradingError."""
    with Grader(deadline=deadline, memory_mb=memory_mb, workers=workers) as grader:
        return grader.compare_many(pairs, progress)


def _handfuls(pairs: Iterable[Pair], size: int) -> list[list[Pair]]:
    """`pairs` in order, cut into lists of at most `size` and of few enough characters."""
    handfuls: list[list[Pair]] = []
    chars = 0
    for pair in pairs:
        chars += len(pair[0]) + len(pair[1])
        if not handfuls or len(handfuls[-1]) == size or chars > _HANDFUL_CHARS:
            handfuls.append([])
            chars = len(pair[0]) + len(pair[1])
        handfuls[-1].append(pair)
    return handfuls


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)
