"""Which rows an export has: runs, their iterations, and a filter of their questions."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from storage import queries
from storage.errors import NotThere, StoreError
from storage.exports.columns import What
from storage.exports.files import NotFinal
from storage.queries.browse import QuestionFilter
from storage.rows import RunDetail

_ITERATIONS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
ITERATIONS_HELP = "An iteration such as 2, a range such as 1-3, a list of these such as 1,3-5, or all"


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows of an export. `runs` is the name of one run; or those of several, perhaps of one only, whose rows have
    the columns `RUN_COLUMNS` too. `iterations` is a text as `parse_iterations` takes it, for each run."""

    runs: str | tuple[str, ...]
    iterations: str = "all"
    what: What = "questions"
    filters: QuestionFilter = field(default_factory=QuestionFilter)
    texts: bool = False  # whether votes have their texts

    def __post_init__(self) -> None:
        if self.texts and self.what != "votes":
            raise StoreError(f"texts: expected an export of votes, which have texts, got {self.what}")

    def names(self) -> tuple[str, ...]:
        """The names of the runs, each once."""
        return (self.runs,) if isinstance(self.runs, str) else tuple(dict.fromkeys(self.runs))

    def depends_on_audits(self) -> bool:
        """Whether a later audit changes the rows."""
        return self.what == "questions" or bool(self.filters.oracle or self.filters.oracle_verdict)

    def described_filters(self) -> dict[str, Any]:
        """The filters that are set."""
        return {name: value for name, value in asdict(self.filters).items() if value not in (None, ())}


class SelectedRun(NamedTuple):
    """A run of an export. `columns` are the values of `RUN_COLUMNS`; empty in an export of one run. `inherited` says
    which of a fork's iterations are those of other runs, whose exports have them."""

    run: RunDetail
    iterations: tuple[int, ...]
    columns: dict[str, Any]
    inherited: dict[str, list[int]]


def runs_of(session: Session, experiment: str) -> tuple[str, ...]:
    """The runs of an experiment, by arm and seed. Raises `NotThere`."""
    arms = queries.experiments.arms_of(session, experiment)
    return tuple(run for runs in arms.values() for run in runs)


def selected_runs(session: Session, selection: Selection) -> tuple[list[SelectedRun], list[str]]:
    """The runs that a selection names with their iterations, and the names of those that it leaves out: of several
    runs with "all" iterations, those that have no labelled one yet.

    Raises `NotThere` when there is no such run or iteration, and `NotFinal` when some questions are not labelled yet,
    or all runs are left out.
    """
    selected, left_out = list[SelectedRun](), list[str]()
    for name in selection.names():
        run = queries.runs.get_run(session, name)
        try:
            iterations = iterations_of(session, name, selection.iterations)
        except NotFinal:
            if isinstance(selection.runs, str) or selection.iterations != "all":
                raise
            left_out.append(name)
            continue
        columns = dict[str, Any]()
        if not isinstance(selection.runs, str):
            place = queries.experiments.get_place(session, name)
            columns = {"experiment": place and place.experiment, "arm": place and place.arm, "run_seed": run.seed}
        selected.append(SelectedRun(run, iterations, columns, queries.forks.by_maker(session, name)))
    if not selected:
        raise NotFinal(f"runs {', '.join(left_out)}: none has an iteration whose questions are all labelled yet")
    return selected, left_out


def parse_iterations(text: str) -> tuple[range, ...] | None:
    """The iterations that a text names: "2", "1-3", "1,3-5", or "all", for which this is None. Raises `StoreError`."""
    if text == "all":
        return None
    numbers = [_ITERATIONS.fullmatch(part) for part in text.split(",")]
    ranges = tuple(range(int(part[1]), int(part[2] or part[1]) + 1) for part in numbers if part is not None)
    if len(ranges) < len(numbers) or not all(ranges):  # a range may end before it begins
        expected = f"{ITERATIONS_HELP[0].lower()}{ITERATIONS_HELP[1:]}"
        raise StoreError(f"iterations: expected {expected}, got {text[:100]!r}")
    return ranges


def iterations_of(session: Session, run: str, text: str) -> tuple[int, ...]:
    """The iterations of a run that a text names. "all" stands for those that the run has made itself and whose
    questions are all labelled.

    Raises `NotThere` when there is no such run or iteration, or when a fork has the iteration from another run, and
    `NotFinal` when some questions are not labelled yet.
    """
    chosen = parse_iterations(text)
    if chosen is None:
        queries.runs.get_run(session, run)
        labelled = queries.questions.labelled_iterations(session, run)
        if not labelled:
            raise NotFinal(f"run {run}: it has no iteration whose questions are all labelled yet")
        return tuple(labelled)
    for end in (max(part[-1] for part in chosen), min(part[0] for part in chosen)):
        queries.runs.refuse_missing_iteration(session, run, end)
    iterations = sorted({iteration for part in chosen for iteration in part})
    inherited = queries.forks.inherited(session, run)
    for iteration in iterations:
        if (maker := inherited.get(iteration)) is not None:
            raise NotThere(f"run {run}, iteration {iteration}: it is that of run {maker}; export it there")
        if not queries.questions.all_labelled(session, run, iteration):
            raise NotFinal(f"run {run}, iteration {iteration}: its questions are not all labelled yet")
    return tuple(iterations)
