"""What a program knows of questions of the tiny worlds (`core.worlds`): how hard they are, and how alike.

Where it reads only a few of the questions, it says nothing: these look like those of a world by accident.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from sqlalchemy.orm import Session

from core.figures import ASKED, SOLVED
from core.settings.config import RunConfig
from core.statistics.estimates import Estimate, mean, pair_share
from core.worlds import difficulty, skeleton
from storage import queries
from storage.rows import SeriesPoint


def asked_points(session: Session, run: str, iteration: int, _config: RunConfig) -> Iterator[SeriesPoint]:
    """How many operations the well-formed questions take, and how many have the same skeleton."""
    texts = queries.series.question_texts(session, run, iteration)
    if not _are_of_a_world([text for _, text in texts]):
        return
    kept = _operations([text for is_kept, text in texts if is_kept])
    if kept is not None:
        yield SeriesPoint.of(kept, iteration, ASKED, "kept")
    asked = _operations([text for _, text in texts])
    if asked is not None:
        yield SeriesPoint.of(asked, iteration, ASKED, "all")
    counts = Counter(operations for _, text in texts if (operations := skeleton(text)) is not None)
    yield SeriesPoint(iteration, "skeletons", "all", "", len(counts), None, None, counts.total())
    alike = pair_share([*counts.values()])
    if alike is not None:
        yield SeriesPoint.of(alike, iteration, "same_skeleton_share", "all")


def solved_points(session: Session, run: str, iteration: int, config: RunConfig) -> Iterator[SeriesPoint]:
    """How many operations those questions of the benchmark take that the Solver answers right."""
    solvers = [row.id for row in queries.checkpoints.solvers_of(session, run) if row.iteration == iteration]
    for solver in solvers:
        answered = queries.evaluations.problems_answered(session, solver, config.evaluation.benchmark)
        solved = _operations([text for text, is_right in answered if is_right])
        if solved is not None and _are_of_a_world([text for text, _ in answered]):
            yield SeriesPoint.of(solved, iteration, SOLVED)


def _operations(texts: Sequence[str]) -> Estimate | None:
    """Their mean number over the questions that are well-posed."""
    return mean([count for text in texts if (count := difficulty(text)) is not None])


def _are_of_a_world(texts: Sequence[str]) -> bool:
    return 2 * sum(difficulty(text) is not None for text in texts) > len(texts)
