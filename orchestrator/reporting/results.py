"""What a stage's result says: its figures with their intervals, as one line of a log and as a table in Prefect."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from sqlalchemy.orm import Session

from core.statistics.estimates import Estimate, share
from core.statistics.guard import Action
from core.texts.unicode import without_commands
from core.types import Role, StageKey
from orchestrator.ledger import Result
from services.drift.alerts import MOST_ALERTS
from services.drift.open_alerts import counted
from services.drift.series import figures_of_labels
from services.evaluations.matrix import is_set
from services.oracles.accuracy import SLICES
from storage import queries

_TRAINED: dict[str, tuple[Role, str]] = {  # stage -> the role, and what precedes the names of its metrics
    "train_challenger": ("challenger", ""),
    "train_solver": ("solver", ""),
    "train_labelled": ("solver", "labelled_"),
}
_METRICS = (("reward", "reward_mean"), ("KL", "kl"), ("entropy", "entropy"))
# What begins a link, a picture, HTML, code or another column in Markdown, also in an address without marks. Emphasis is
# left: it does no harm, and figures would be hard to read in Prefect's lists.
_MARKS = re.compile(r"^[#>+~=*-]|[\\`|]|<(?=[a-zA-Z/!?])|\](?=[(\[:])|:(?=//)|(?<=[wW]{3})\.|@(?=[\w-]+\.)")
_NOT_KEPT = ("too_easy", "too_hard", "no_majority", "malformed", "duplicate")
_AUDITED = {"label_accuracy": "label accuracy", "ill_posed_share": "ill-posed share"}  # series -> its name in words
_OUTCOMES: dict[Action, str] = {
    "ignore": "the run goes on",
    "warn": "the run goes on",
    "pause": "the run waits for a person's decision",
    "roll_back": "the run goes back to",
    "stop": "the run stops with",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure as text: its value, its 95% interval if it has one, and the number of items that it rests on."""

    name: str
    value: str
    interval: str = ""
    n: int | None = None

    @classmethod
    def of_share(cls, name: str, estimate: Estimate) -> Figure:
        interval = f"[{100 * estimate.lo:.1f}, {100 * estimate.hi:.1f}]"
        return cls(name, f"{estimate.value:.1%}", interval, estimate.n)


@dataclass(frozen=True, slots=True)
class StageResult:
    """The result of a stage: figures, and sentences about what no figure says."""

    figures: tuple[Figure, ...] = ()
    sentences: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The result in one line. Figures that follow each other and have the same n show it once."""
        groups = []
        for n, figures in groupby(self.figures, key=lambda figure: figure.n):
            text = ", ".join(" ".join(filter(None, (figure.name, figure.value, figure.interval))) for figure in figures)
            groups.append(text if n is None else f"{text} (n = {n:,})")
        return "; ".join(filter(None, (", ".join(groups), *self.sentences)))

    @property
    def table(self) -> str:
        """The result as Markdown: a table of the figures, then the sentences as a list."""
        rows = [
            f"| {as_markdown(figure.name)} | {as_markdown(figure.value)} | {figure.interval} | {n} |"
            for figure in self.figures
            for n in ("" if figure.n is None else f"{figure.n:,}",)
        ]
        head = ["| figure | value | 95% interval | n |", "|---|---:|---:|---:|"] if rows else []
        return "\n".join(
            [*head, *rows, *([""] if rows else []), *(f"- {as_markdown(text)}" for text in self.sentences)]
        ).strip()


def as_markdown(text: str) -> str:
    """Markdown that shows a text as it is, in one line: without links, pictures, HTML, code and columns.

    The name of a benchmark may be that of a file, and a sentence may be what a person wrote.
    """
    return _MARKS.sub(r"\\\g<0>", " ".join(without_commands(text).split()))


def stage_result(session: Session, key: StageKey, result: Result) -> StageResult:
    """What a stage that is done says. `result` is its result in the ledger; the rest is read from the store."""
    if key.stage in _TRAINED:
        is_fixed = result.get("trained") is False  # a Challenger that is never trained
        unchanged = (f"nothing is trained; the model stays {result['checkpoint']}",) if is_fixed else ()
        return StageResult(() if is_fixed else tuple(_training(session, key, result)), unchanged)
    figures = list[Figure]()
    match key.stage:
        case "audit_labels":
            return _audit(session, key, result)
        case "check_health" | "ask_a_person":
            return _health(session, key, result)
        case "evaluate" | "evaluate_labelled":
            for row in queries.evaluations.evaluation_sums(session, key.run):
                if row.checkpoint == result["checkpoint"] and row.greedy is not None and not is_set(row.benchmark):
                    figures += [
                        Figure.of_share(f"{Path(row.benchmark).name} pass@1", row.pass_at_1),
                        Figure.of_share("greedy", row.greedy),
                        Figure.of_share("majority", row.majority),
                    ]
        case "label_questions" | "admit_questions":
            if (kept := share(result["kept"], result["candidates"])) is not None:
                figures.append(Figure.of_share("kept", kept))
            counts = {name: result[name] for name in _NOT_KEPT if result.get(name)}
            figures += [Figure(name.replace("_", " "), f"{count:,}") for name, count in counts.items()]
            for name, gate in result.get("gates", {}).items():
                figures.append(Figure(f"refused by {name}", f"{gate['refused']:,}"))
                figures += [Figure(f"{name}: {metric}", f"{value:.3g}") for metric, value in gate["metrics"].items()]
        case _:  # `generate_questions` and `read_prompts` count what they wrote
            counts = {name: value for name, value in result.items() if isinstance(value, int)}
            figures += [Figure(name, f"{count:,}") for name, count in counts.items()]
    return StageResult(tuple(figures))


def _training(session: Session, key: StageKey, result: Result) -> Iterator[Figure]:
    """The steps, and the metrics at the first and the last step. They have no interval, since steps that follow each
    other are not independent."""
    role, prefix = _TRAINED[key.stage]
    yield Figure("steps", f"{result['steps']:,}")
    for name, metric in _METRICS:
        rows = queries.figures.train_metrics_of(
            session, key.run, iteration=key.iteration, role=role, name=f"{prefix}{metric}"
        )
        values = [row.value for row in rows if row.value is not None]
        if values:
            yield Figure(name, f"{values[0]:.3g} → {values[-1]:.3g}")


def _audit(session: Session, key: StageKey, result: Result) -> StageResult:
    oracle = result["oracle"]
    if oracle is None:
        return StageResult(sentences=("the run has no oracle, so nothing was audited",))
    if "unreachable" in result:
        audited = f"only {n:,} labels were" if (n := result.get("audited")) else "nothing was"
        return StageResult(sentences=(f"the oracle {oracle} did not answer, so {audited} audited",))
    stored = figures_of_labels(session, key.run, key.iteration, oracle)
    figures = [
        Figure.of_share(f"{words} of {over} labels", stored[name, over])
        for name, words in _AUDITED.items()
        for over in SLICES
        if (name, over) in stored
    ]
    return StageResult((Figure("audited", f"{result['audited']:,}"), *figures), (f"the oracle is {oracle}",))


def _health(session: Session, key: StageKey, result: Result) -> StageResult:
    """The iteration's alerts, those of the guard and those of the drift rules, and how the run continues. If a person
    decided that, what the person decided, and why."""
    if "note" in result:
        return StageResult(sentences=tuple(filter(None, (f"a person decided: {_outcome(result)}", result["note"]))))
    alerts = queries.alerts.list_alerts(session, run=key.run, iteration=key.iteration, limit=MOST_ALERTS)
    texts = [alert.text for alert in sorted(alerts, key=lambda alert: alert.severity != "critical")]
    # Early stopping and the limit of roll backs give a warning, but raise no alert.
    others = [
        warning for warning in result.get("warnings") or [] if not any(text.startswith(warning) for text in texts)
    ]
    counts = Counter(alert.severity for alert in alerts)
    not_tested = filter(None, [result.get("untested")])
    return StageResult(sentences=(counted(counts) or "no alerts", *texts, *others, *not_tested, _outcome(result)))


def _outcome(result: Result) -> str:
    outcome, solver = _OUTCOMES[result["action"]], (result.get("back_to") or {}).get("solver")
    return f"{outcome} {solver}" if solver else outcome
