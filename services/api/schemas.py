"""The API's answers, where they are not types of `core` or rows of the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, Field, TypeAdapter

from core.questions.filtering import FilterStats
from core.statistics.estimates import Estimate, share
from core.types import Checkpoint, Verdict
from storage.rows import Run, Stage, StageRow


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def to_json(answer: Any, *, ensure_ascii: bool = False) -> bytes:
    """An answer as the API sends it: a pydantic model, or a dataclass."""
    adapter = _adapter(type(answer))  # type: ignore[arg-type]  # mypy takes classes for unhashable
    return adapter.dump_json(answer, ensure_ascii=ensure_ascii)


class RunPage(BaseModel):
    items: list[Run]
    next: str | None  # the `after` of the next page; null on the last page


class IterationSummary(BaseModel):
    """An iteration that has begun. Iteration 0 is the evaluation of the base model."""

    iteration: int
    stages: list[Stage]
    now: str | None  # the stage that a live process runs; an interrupted one has the status "running" but is not here
    questions: int | None  # null until they are labelled
    verdicts: dict[Verdict, int]
    kept: Estimate | None
    mean_p_hat: float | None
    seconds: float  # of the latest attempts of the stages that ended

    @classmethod
    def of(cls, iteration: int, rows: Sequence[StageRow], stats: FilterStats | None, time: datetime) -> Self:
        at_work = [row.stage for row in rows if row.status == "running" and row.lease_expires > time]
        return cls(
            iteration=iteration,
            stages=[*rows],
            now=at_work[-1] if at_work else None,
            questions=stats.candidates if stats else None,
            verdicts={verdict: getattr(stats, verdict) for verdict in get_args(Verdict)} if stats else {},
            kept=share(stats.kept, stats.candidates) if stats else None,
            mean_p_hat=stats.mean_p_hat if stats else None,
            seconds=sum(stage.seconds or 0.0 for stage in rows),
        )


class CheckpointDetail(BaseModel):
    checkpoint: Checkpoint
    manifest: dict[str, str]  # file name -> sha256
    ancestors: list[Checkpoint]  # its parent first, the base model last
    children: list[Checkpoint]
    descendants: list[Checkpoint]  # its children first, then theirs, and so on


class Evaluation(BaseModel):
    """The accuracy of a checkpoint on a benchmark. Each n counts benchmark items."""

    checkpoint: str
    benchmark: str
    samples: int  # answers per item
    pass_at_1: Estimate
    greedy: Estimate
    majority: Estimate


class Manifest(BaseModel):
    """The contents of an export, and the checkpoints and settings that they come from."""

    run: str
    iteration: int
    only: str
    format: str
    rows: int
    verdicts: dict[Verdict, int]
    audited: dict[str, int]  # oracle -> rows with a verdict of it
    columns: list[str]
    bytes: int
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    asked_by: dict[str, str]  # checkpoint that wrote questions -> sha256; empty for given prompts
    voted_by: dict[str, str]
    config: dict[str, Any]


class RecordManifest(BaseModel):
    """The contents of an export of an evaluation's records."""

    evaluation: str
    model: str
    benchmark: str
    run: str | None  # the run that made the evaluation; null: `coevo evaluate` did
    format: str
    rows: int  # one for each question
    answers: int
    judged: dict[str, int]  # judge -> answers with a verdict of it
    texts: bool  # whether the answers have the whole replies
    columns: list[str]
    bytes: int
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    manifest: dict[str, Any]  # the evaluation's: all that its answers depend on


class ExperimentRuns(BaseModel):
    """The runs of an experiment."""

    name: str
    arms: dict[str, list[str]]  # arm -> its runs by their seeds; the baseline comes first


class Preset(BaseModel):
    name: str
    about: str  # the first line of its comment


class Triggered(BaseModel):
    """A Prefect flow run that works on a run, will do so, or did."""

    run: str
    flow_run: str
    state: str  # Prefect's type of state: SCHEDULED, PENDING, RUNNING, PAUSED, CANCELLING, CANCELLED
    url: str  # of its page in Prefect's UI


class TriggeredEvaluation(BaseModel):
    """A Prefect flow run that evaluates a model."""

    model: str
    flow_run: str
    state: str  # Prefect's type of state, as in `Triggered`
    url: str  # of its page in Prefect's UI


class FlowRunState(BaseModel):
    """A Prefect flow run and its state."""

    run: str
    flow_run: str
    state: str  # Prefect's type: SCHEDULED, PENDING, RUNNING, PAUSED, CANCELLING, FAILED, CRASHED, CANCELLED
    name: str  # Prefect's name of the state, for example Late: scheduled, but no worker has taken it
    message: str | None  # why it failed or was cancelled
    since: datetime  # when it got this state
    begun: bool  # whether the run is in the store and this flow run has changed its status
    url: str  # of its page in Prefect's UI


class Health(BaseModel):
    status: Literal["ok"] = "ok"
