"""Whether two answers are equal. Text and exact numbers decide at once; the rest is compared by a worker process.

math-verify's own timeouts need the main thread and never fire inside a long C call. So the parent process keeps the
time: it kills and replaces a worker that misses the deadline. docs/grading.md says how equality is decided.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from queue import LifoQueue
from types import TracebackType

from core.grading.answers import normalise
from core.grading.equality import decide, no_judge
from core.grading.outcomes import NEEDS_JUDGE, Outcome
from core.grading.process import STARTUP_LIMIT, GradingError, WorkerProcess
from core.types import EqualityVerdict

__all__ = ["MAX_CHARS", "Comparison", "Grader", "GradingError", "grade_pairs", "process_grader", "verdict_here"]

MAX_CHARS = 2000  # of a normalised answer; a longer one is compared as text only
_CHUNK_PAIRS = 16  # pairs sent to a worker at once, for fewer switches between processes
_CHUNK_CHARS = 12_000  # in all pairs of a chunk: at 4 bytes each they fit into a pipe's 64 KiB
_CACHED_PAIRS = 100_000
_MIN_MEMORY_MB = 512  # sympy alone takes a good part of it

Pair = tuple[str, str]
OnProgress = Callable[[int, int], None]  # called with comparisons done, comparisons in total


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing two answers. `reason` says why a verdict is unknown; `seconds` is wall time."""

    verdict: EqualityVerdict
    reason: str | None
    seconds: float


class Grader:
    """Compares answers. It is a context manager: a worker starts when a pair first needs it, and runs until the exit.

    `deadline` is in seconds from the moment a ready worker turns to a pair; `memory_mb` limits each worker's address
    space. A Grader may be used from several threads at once.
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
        self._idle: LifoQueue[WorkerProcess] = LifoQueue()  # last in, first out: few pairs start few workers
        for worker in self._workers:
            self._idle.put(worker)
        self._cache: dict[Pair, Comparison] = {}
        self._caching = threading.Lock()  # `iter` fails while another thread adds a pair

    def __enter__(self) -> Grader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait for busy workers, then end all. If the Grader is used again, it starts new ones."""
        workers = [self._idle.get() for _ in self._workers]
        for worker in workers:
            worker.kill()
            self._idle.put(worker)

    @property
    def worker_pids(self) -> list[int]:
        """The ids of the worker processes that run now."""
        return [pid for worker in self._workers if (pid := worker.pid) is not None]

    def compare(self, a: str, b: str) -> Comparison:
        """Compare two answers, whose order does not matter. Raises `GradingError` if no worker can be started."""
        return self.compare_many([(a, b)])[0]

    def compare_many(self, pairs: Sequence[Pair], progress: OnProgress | None = None) -> list[Comparison]:
        """The comparisons of `pairs`, in their order. Those that need a worker are shared among all workers.

        `progress` is called from this thread. Raises `GradingError` if no worker can be started.
        """
        results: dict[int, Comparison] = {}
        positions: dict[Pair, list[int]] = {}  # of each pair that needs a worker
        for i, answers in enumerate(pairs):
            start = time.perf_counter()
            a, b = map(normalise, answers)
            pair = (a, b) if a <= b else (b, a)
            if cached := self._cache.get(pair):
                results[i] = cached
            elif (outcome := _decide_here(*pair)) == NEEDS_JUDGE:
                positions.setdefault(pair, []).append(i)
            else:
                results[i] = Comparison(*outcome, time.perf_counter() - start)
        _report(progress, len(results), len(pairs))
        for pair, comparison in self._compare_in_workers(list(positions)):
            results.update(dict.fromkeys(positions[pair], comparison))
            self._cache_comparison(pair, comparison)
            _report(progress, len(results), len(pairs))
        return [results[i] for i in range(len(pairs))]

    def _compare_in_workers(self, pairs: list[Pair]) -> Iterator[tuple[Pair, Comparison]]:
        """Each pair with its comparison by a worker, which gets a chunk of pairs at a time."""
        chunks = _chunks(pairs, size=max(1, min(_CHUNK_PAIRS, len(pairs) // (8 * len(self._workers)))))
        if len(self._workers) == 1 or len(chunks) == 1:
            for chunk in chunks:
                yield from zip(chunk, self._ask_worker(chunk), strict=True)
            return
        threads = ThreadPoolExecutor(len(self._workers), thread_name_prefix="grading")
        try:
            for chunk, comparisons in zip(chunks, threads.map(self._ask_worker, chunks), strict=True):
                yield from zip(chunk, comparisons, strict=True)
        finally:
            threads.shutdown(cancel_futures=True)

    def _ask_worker(self, pairs: list[Pair]) -> list[Comparison]:
        worker = self._idle.get()
        try:
            return [Comparison(*outcome, seconds) for outcome, seconds in worker.ask(pairs)]
        finally:
            self._idle.put(worker)

    def _cache_comparison(self, pair: Pair, comparison: Comparison) -> None:
        """Cache a worker's comparison. If the worker died it is not cached, since the pair may not have been the cause.

        A full cache drops its oldest entry.
        """
        if comparison.reason is not None and comparison.reason.startswith("worker died"):
            return
        with self._caching:
            if len(self._cache) >= _CACHED_PAIRS:
                del self._cache[next(iter(self._cache))]
            self._cache[pair] = comparison


def verdict_here(a: str, b: str) -> EqualityVerdict:
    """Whether two answers are equal by their text and exact numbers; `unknown` if that takes a worker process."""
    return _decide_here(normalise(a), normalise(b)).verdict


def _decide_here(a: str, b: str) -> Outcome:
    if a != b and max(len(a), len(b)) > MAX_CHARS:
        return Outcome("unknown", f"longer than {MAX_CHARS} characters")
    return decide(a, b, no_judge)


@cache
def process_grader() -> Grader:
    """The Grader that this process shares. Its worker, which takes seconds to start, stays until the process ends."""
    grader = Grader()
    atexit.register(grader.close)
    return grader


def grade_pairs(
    pairs: Sequence[Pair],
    *,
    deadline: float = 2.0,
    memory_mb: int = 2048,
    workers: int = 1,
    progress: OnProgress | None = None,
) -> list[Comparison]:
    """The comparisons of `pairs`, in their order, by a new Grader. Raises `GradingError`."""
    with Grader(deadline=deadline, memory_mb=memory_mb, workers=workers) as grader:
        return grader.compare_many(pairs, progress)


def _chunks(pairs: Iterable[Pair], size: int) -> list[list[Pair]]:
    """Cut `pairs` into lists of at most `size` pairs and `_CHUNK_CHARS` characters, in order."""
    chunks: list[list[Pair]] = []
    chars = 0
    for pair in pairs:
        chars += len(pair[0]) + len(pair[1])
        if not chunks or len(chunks[-1]) == size or chars > _CHUNK_CHARS:
            chunks.append([])
            chars = len(pair[0]) + len(pair[1])
        chunks[-1].append(pair)
    return chunks


def _report(progress: OnProgress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)
