"""The API's answers, where they are not types of `core` or rows of the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, Field

from core.questions.filtering import FilterStats
from core.statistics.estimates import Estimate, share
from core.types import Checkpoint, Flow, Verdict
from core.types import Stage as StageName
from services.views.states import MEANINGS, State, stage_at_work
from storage.queries.drift import LabelChange
from storage.rows import RunLease, Seed, Stage, StageRow


class OpenAlerts(BaseModel):
    """The number of a run's alerts that nobody has acknowledged."""

    critical: int
    warning: int


class RunSummary(BaseModel):
    """A run and its state. A run that only Prefect knows, because its flow has not begun, has no seed and settings."""

    name: str
    preset: str | None
    method: str | None  # the Solver's, as in `solver.reward.type`
    seed: Seed | None
    iterations: int | None  # planned
    iterations_done: int | None  # of which every stage is done
    created_at: datetime
    updated_at: datetime | None  # when its stored row last changed
    tags: list[str]
    note: str
    noted_by: str | None  # who changed tags or note last, and when
    noted_at: datetime | None
    state: State = Field(description=" ".join(f"{state}: {text}." for state, text in MEANINGS.items()))
    reason: str  # for the state, in one sentence
    since: datetime  # when it got into this state
    iteration: int | None  # of the stage, or after which the run has paused or was stopped
    stage: StageName | None  # that is at work or waits, or in which the run was interrupted or has ended
    active: bool  # a process works on it, or will once a flow runner takes it; so it may change by itself
    flow_run: str | None  # the address of its newest flow run in Prefect's UI; lists leave out one that is done
    open_alerts: OpenAlerts
    label_change: LabelChange | None  # null: fewer than two of its iterations have been audited


class InheritedIterations(BaseModel):
    """The iterations `first` to `last` of a fork, which another run has made and whose rows are that run's."""

    run: str
    first: int
    last: int


class RunWithConfig(RunSummary):
    config: dict[str, Any] | None  # null: only Prefect knows the run
    inherited: list[InheritedIterations]  # empty if it is no fork


class RunPage(BaseModel):
    items: list[RunSummary]
    next: str | None  # the `after` of the next page; null on the last page
    problem: str | None  # why Prefect could not be asked; then runs that only Prefect knows are missing


class IterationSummary(BaseModel):
    """An iteration that has begun. Iteration 0 is the evaluation of the base model."""

    iteration: int
    stages: list[Stage]
    now: str | None  # the stage that a live process runs; one that was cut off is "running" but is not here
    questions: int | None  # null until they are labelled
    verdicts: dict[Verdict, int]
    kept: Estimate | None
    mean_p_hat: float | None
    seconds: float  # of the latest attempts of the stages that ended
    inherited_from: str | None  # the run that made it, if that is another one

    @classmethod
    def of(
        cls,
        iteration: int,
        rows: Sequence[StageRow],
        stats: FilterStats | None,
        holder: RunLease | None,
        maker: str | None,
    ) -> Self:
        """`holder` is the live lease on the run, `maker` the run that the iteration was inherited from."""
        at_work = stage_at_work(rows, holder)
        return cls(
            iteration=iteration,
            stages=[*rows],
            now=at_work.stage if at_work else None,
            questions=stats.candidates if stats else None,
            verdicts={verdict: getattr(stats, verdict) for verdict in get_args(Verdict)} if stats else {},
            kept=share(stats.kept, stats.candidates) if stats else None,
            mean_p_hat=stats.mean_p_hat if stats else None,
            seconds=sum(stage.seconds or 0.0 for stage in rows),
            inherited_from=maker,
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


class ExportColumn(BaseModel):
    """A column of an exported file."""

    name: str
    type: str  # Arrow's name of it, such as int32 or string
    description: str


class RowCounts(BaseModel):
    """How many rows an export has with the same iterations and filters."""

    iterations: list[int]
    questions: int
    votes: int


class ManifestRun(BaseModel):
    """A run of an export."""

    run: str
    iterations: list[int]
    config: dict[str, Any]
    inherited: dict[str, list[int]] = {}  # run -> iterations of this one that it has made, whose rows it has


class PlacedRun(ManifestRun):
    """One of the runs of an export, with its experiment, arm and seed if it has them."""

    experiment: str | None
    arm: str | None
    run_seed: Seed


class _Contents(BaseModel):
    """The contents of an export, and the checkpoints that they come from."""

    what: str  # questions or votes
    filters: dict[str, Any]  # those that are set
    format: str
    schema_version: int  # another one has columns of other names, types or meanings
    columns: list[ExportColumn]
    rows: int
    texts: int  # rows with a vote's text
    questions: int  # that match the filters
    verdicts: dict[Verdict, int]  # of these questions
    audited: dict[str, int]  # oracle -> how many of these questions have a verdict of it; empty for votes without one
    bytes: int
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    asked_by: dict[str, str]  # checkpoint that wrote questions -> sha256; empty for given prompts
    voted_by: dict[str, str]


class Manifest(_Contents, ManifestRun):
    """The contents of an export of a run, and the checkpoints and settings that they come from."""


class ManifestOfRuns(_Contents):
    """The contents of an export of several runs, and the checkpoints and settings that they come from."""

    runs: list[PlacedRun]
    left_out: list[str]  # runs with no iteration whose questions are all labelled


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


class PresetNeed(BaseModel):
    """Something that a preset needs."""

    kind: Literal["model", "prompts", "benchmark", "GPUs", "package", "trainer", "judge", "service"]
    setting: str  # that names it
    what: str
    here: bool | None  # on the machine of the API; None: not known
    remedy: str | None  # what to put where, if it is missing


class PresetDetails(BaseModel):
    """What a preset is, needs and costs. `hours_typical` and `hours_maximum` are those of a whole run, by assumed
    speeds; None for the tiny world, where they are off by far."""

    comment: str
    arxiv: list[str]  # numbers of papers
    kind: Flow
    method: str
    base_model: str
    iterations: int
    gpus: int
    hours_typical: float | None
    hours_maximum: float | None
    needs: list[PresetNeed]


class Preset(BaseModel):
    name: str
    about: str  # the first line of its comment
    details: PresetDetails | None  # None: not known to this API


class Triggered(BaseModel):
    """A Prefect flow run that works on a run, will do so, or did, and the state of the run."""

    run: str
    flow_run: str
    state: State  # as in `RunSummary`
    reason: str
    url: str  # of its page in Prefect's UI


class TriggeredEvaluation(BaseModel):
    """A Prefect flow run that evaluates a model."""

    model: str
    flow_run: str
    state: str  # Prefect's type of state: SCHEDULED, PENDING, RUNNING, ...
    url: str  # of its page in Prefect's UI


class Health(BaseModel):
    status: Literal["ok"] = "ok"
