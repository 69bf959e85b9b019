"""A client of the REST API with typed answers, for `coevo show questions`, `show rollouts` and `runs` and programs with coevo.

api = ApiClient("http://127.0.0.1:8080")
for question in api.questions("demo", 1, verdict=["kept"], sort="-p_hat"):
    print(question.p_hat, question.text)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from pydantic import TypeAdapter

from core.errors import CoevoError
from core.types import Checkpoint, CheckpointRole, OracleVerdict, Role, TrainingRollout
from services.api.question_schemas import QuestionDetail, Statistics
from services.api.routes.administration import NewKey
from services.api.routes.alerts import AlertDetail
from services.api.routes.audits import Agreements, RunAudits, Sample
from services.api.routes.labelling import Labelling
from services.api.routes.run_notes import NotesOfRun
from services.api.routes.traces import ClusterSummary, VoteText
from services.api.routes.training_rollouts import TrainingRolloutText
from services.api.schemas import (
    CheckpointDetail,
    Evaluation,
    ExperimentRuns,
    IterationSummary,
    Manifest,
    ManifestOfRuns,
    RecordManifest,
    RunSummary,
    RunWithConfig,
    Triggered,
    TriggeredEvaluation,
)
from services.client import Client
from services.comparison import Comparison
from services.configuration import Configuration
from services.costs import RunCosts
from services.evaluations import EvaluationFigures, ListedEvaluation, Record
from services.listeners import guard
from services.matrix import MatrixCell
from services.model_comparison import ModelComparison
from services.settings_comparison import SettingsComparison
from storage.rows import (
    AlertRow,
    Job,
    KeyRow,
    QuestionSummary,
    Scope,
    SeriesPoint,
    Stage,
    StepLabelFigures,
    TrainMetric,
)

if TYPE_CHECKING:
    from storage.export_files import PlainFormat  # not imported at run time, because it imports Arrow

__all__ = ["ApiClient", "ApiError"]
_ALERT, _KEY, _JOB, _STAGE = TypeAdapter(AlertRow), TypeAdapter(KeyRow), TypeAdapter(Job), TypeAdapter(Stage)
_EVALUATION, _EVALUATION_FIGURES = TypeAdapter(ListedEvaluation), TypeAdapter(EvaluationFigures)
_COMPARISON, _MODEL_COMPARISON = TypeAdapter(Comparison), TypeAdapter(ModelComparison)
_COSTS, _RECORD, _TRAINING_ROLLOUT = TypeAdapter(RunCosts), TypeAdapter(Record), TypeAdapter(TrainingRollout)
_TRAINING_ROLLOUT_TEXT = TypeAdapter(TrainingRolloutText)
_QUESTION, _QUESTION_DETAIL, _VOTE = TypeAdapter(QuestionSummary), TypeAdapter(QuestionDetail), TypeAdapter(VoteText)


class ApiError(CoevoError):
    """The API refused a request, whose reason is in the message, or it did not answer."""


@dataclass(frozen=True, slots=True)
class ApiClient:
    """A client of the API at `url` with typed answers, over `services.client`. It sends `key`, if there is one. Every
    method raises `ApiError`."""

    url: str
    key: str | None = None
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if self.key:  # it is sent to no other user's process on this machine
            guard(self.url)

    def runs(self, **filters: Any) -> Iterator[RunSummary]:
        """Runs with their states, by default all, the newest first; also those that only Prefect knows so far.

        `filters` are the parameters of the route (docs/api.md).
        """
        return (RunSummary.model_validate(item) for item in self._items("/runs", filters))

    def run(self, name: str) -> RunWithConfig:
        """One run with its state and its configuration."""
        return RunWithConfig.model_validate(self._get(f"/runs/{name}", {}))

    def annotate(self, run: str, **changes: Any) -> NotesOfRun:
        """Change the tags and the note of a run; `changes` are `add`, `remove`, `note` and `by`."""
        return NotesOfRun.model_validate(self._post(f"/runs/{run}/notes", changes))

    def stages(self, run: str) -> list[Stage]:
        """The stages of a run that were started, by iteration and start."""
        return [_STAGE.validate_python(row) for row in self._get(f"/runs/{run}/stages", {})]

    def pool(self, run: str | None = None) -> list[Job]:
        """The trainings in the worker pool that wait or run, or all of a run, also those that are done."""
        return [_JOB.validate_python(row) for row in self._get("/pool", {"run": run})]

    def iterations(self, run: str) -> list[IterationSummary]:
        """The iterations of a run that were begun, with their stages."""
        return [IterationSummary.model_validate(row) for row in self._get(f"/runs/{run}/iterations", {})]

    def create_run(
        self, name: str, preset: str, *, iterations: int | None = None, overrides: Mapping[str, Any] | None = None
    ) -> Triggered:
        """Start a run, after its settings have been checked (docs/api.md)."""
        body = {"name": name, "preset": preset, "iterations": iterations, "overrides": dict(overrides or {})}
        return Triggered.model_validate(self._post("/runs", body))

    def cancel(self, run: str, why: str | None = None) -> list[Triggered]:
        """Cancel the flow runs of a run that are at work or wait."""
        return [Triggered.model_validate(row) for row in self._post(f"/runs/{run}/cancel", {"why": why})]

    def resume(self, run: str, iterations: int | None = None) -> Triggered:
        """Continue a run where it stopped. `iterations` sets a higher number of iterations."""
        return Triggered.model_validate(self._post(f"/runs/{run}/resume", {"iterations": iterations}))

    def decide(self, run: str, decision: str, note: str = "") -> Triggered:
        """Answer a run that is paused: go on, roll back, or stop."""
        return Triggered.model_validate(self._post(f"/runs/{run}/decision", {"decision": decision, "note": note}))

    def questions(self, run: str, iteration: int, **filters: Any) -> Iterator[QuestionSummary]:
        """The questions of an iteration, a page at a time; `filters` are the parameters of the route (docs/api.md)."""
        path = f"/runs/{run}/iterations/{iteration}/questions"
        return (_QUESTION.validate_python(item) for item in self._items(path, filters))

    def question(self, run: str, iteration: int, index: int) -> QuestionDetail:
        """One question with every vote."""
        return _QUESTION_DETAIL.validate_python(self._get(f"/runs/{run}/iterations/{iteration}/questions/{index}", {}))

    def vote(self, run: str, iteration: int, index: int, sample: int) -> VoteText:
        """One vote of a question, with the text that the Solver wrote if the run keeps it."""
        path = f"/runs/{run}/iterations/{iteration}/questions/{index}/votes/{sample}"
        return _VOTE.validate_python(self._get(path, {}))

    def training_rollouts(self, run: str, role: Role, iteration: int, **filters: Any) -> Iterator[TrainingRollout]:
        """The stored rollouts of a training, a page at a time; `filters` are the parameters of the route."""
        items = self._items(f"/runs/{run}/training/{role}/{iteration}/rollouts", filters)
        return (_TRAINING_ROLLOUT.validate_python(item) for item in items)

    def training_rollout(
        self, run: str, role: Role, iteration: int, step: int, prompt: int, rollout: int
    ) -> TrainingRolloutText:
        """One rollout of a training, with the text that the model wrote if the run keeps it."""
        path = f"/runs/{run}/training/{role}/{iteration}/rollouts/{step}/{prompt}/{rollout}"
        return _TRAINING_ROLLOUT_TEXT.validate_python(self._get(path, {}))

    def clusters(self, run: str, iteration: int, limit: int = 20) -> list[ClusterSummary]:
        """Clusters of similar questions, the largest first."""
        rows = self._get(f"/runs/{run}/iterations/{iteration}/clusters", {"limit": limit})
        return [ClusterSummary.model_validate(row) for row in rows]

    def statistics(self, run: str, iteration: int) -> Statistics:
        return Statistics.model_validate(self._get(f"/runs/{run}/iterations/{iteration}/statistics", {}))

    def manifest(self, run: str, **what: Any) -> Manifest:
        """The manifest of an export: what the file contains, and what made it; `what` is as in `export`."""
        return Manifest.model_validate(self._get(f"/runs/{run}/export/manifest", what))

    @overload
    def export(self, run: str, to: Path, **what: Any) -> Manifest: ...
    @overload
    def export(self, run: list[str] | None, to: Path, **what: Any) -> ManifestOfRuns: ...
    def export(self, run: str | list[str] | None, to: Path, **what: Any) -> Manifest | ManifestOfRuns:
        """Write an export of a run, of a list of runs, or with None of an `experiment`, to `to`, which appears once it
        is complete. If the connection breaks, what has arrived is kept beside it, and another call continues the
        download.

        `what` are the parameters of the route: `iterations`, `what`, `format`, `texts`, and the filters of questions
        (docs/api.md).
        """
        if isinstance(run, str):
            return Manifest.model_validate(self._client.export(f"/runs/{run}/export", to, **what))
        return ManifestOfRuns.model_validate(self._client.export("/export", to, run=run, **what))

    def checkpoints(self, run: str) -> list[Checkpoint]:
        """The checkpoints of a run by iteration, the base model first."""
        return [Checkpoint(**row) for row in self._get(f"/runs/{run}/checkpoints", {})]

    def checkpoint(self, run: str, role: CheckpointRole, iteration: int) -> CheckpointDetail:
        """One checkpoint with its files, and which checkpoints were trained from which."""
        return CheckpointDetail.model_validate(self._get(f"/runs/{run}/checkpoints/{role}/{iteration}", {}))

    def all_evaluations(self, run: str | None = None) -> list[ListedEvaluation]:
        """What models were asked, with their accuracy: evaluations of `coevo evaluate`, the newest first, or those of a
        run in their order."""
        rows = self._get("/evaluations", {} if run is None else {"run": run})
        return [_EVALUATION.validate_python(row) for row in rows]

    def evaluation(self, key: str) -> EvaluationFigures:
        """The figures of one evaluation, and its manifest."""
        return _EVALUATION_FIGURES.validate_python(self._get(f"/evaluations/{key}", {}))

    def evaluate(self, model: str, *benchmarks: str, **how: Any) -> TriggeredEvaluation:
        """Start an evaluation of a run's model, such as "demo:3"; `how` is as in the API."""
        body = {"model": model, "benchmarks": benchmarks, **how}
        return TriggeredEvaluation.model_validate(self._post("/evaluations", body))

    def records(self, key: str) -> Iterator[Record]:
        """The questions of an evaluation by their ids, with the answers to them, without the whole replies."""
        return (_RECORD.validate_python(item) for item in self._items(f"/evaluations/{key}/records", {}))

    def record(self, key: str, item: str) -> Record:
        """One question of an evaluation, with the whole replies where they are kept."""
        return _RECORD.validate_python(self._get(f"/evaluations/{key}/record", {"item": item}))

    def record_manifest(self, key: str, kind: PlainFormat) -> RecordManifest:
        """The manifest of the export of an evaluation's records."""
        return RecordManifest.model_validate(self._get(f"/evaluations/{key}/exports/{kind}/manifest", {}))

    def export_records(self, key: str, kind: PlainFormat, to: Path) -> RecordManifest:
        """Write the records of an evaluation to `to`, in the same way as `export` does."""
        return RecordManifest.model_validate(self._client.export(f"/evaluations/{key}/exports/{kind}", to))

    def evaluations(self, run: str) -> list[Evaluation]:
        """The results of a run's checkpoints on benchmarks."""
        return [Evaluation.model_validate(row) for row in self._get(f"/runs/{run}/evaluations", {})]

    def costs(self, run: str) -> RunCosts:
        """What a run has cost so far."""
        return _COSTS.validate_python(self._get(f"/runs/{run}/costs", {}))

    def configuration(self, run: str) -> Configuration:
        """Every setting of a run, with its source and its default."""
        return TypeAdapter(Configuration).validate_python(self._get(f"/runs/{run}/configuration", {}))

    def settings_comparison(self, *runs: str) -> SettingsComparison:
        """The settings in which runs differ, and the groups of runs that differ only in their seed."""
        return TypeAdapter(SettingsComparison).validate_python(self._get("/comparison/settings", {"run": runs}))

    def experiments(self) -> list[ExperimentRuns]:
        """Experiments that have a run."""
        return [ExperimentRuns.model_validate(row) for row in self._get("/experiments", {})]

    def comparison(self, *names: str) -> Comparison:
        """The arms of an experiment compared, or runs, with the first as the baseline."""
        return _COMPARISON.validate_python(self._get("/comparison", {"name": names}))

    def model_comparison(self, *models: str, **how: Any) -> ModelComparison:
        """Models on the benchmarks of a `suite`, or on those of `benchmark`, compared with the first model."""
        return _MODEL_COMPARISON.validate_python(self._get("/comparison/models", {"model": models, **how}))

    def metrics(self, run: str, **filters: Any) -> list[TrainMetric]:
        """Training metrics by step; only those of `iteration`, `role` or `name` if it is given."""
        return [TrainMetric(**row) for row in self._get(f"/runs/{run}/metrics", filters)]

    def matrix(self, run: str) -> list[MatrixCell]:
        """The accuracy of every Solver on every iteration's questions, where `coevo show matrix` measured it."""
        return TypeAdapter(list[MatrixCell]).validate_python(self._get(f"/runs/{run}/matrix", {}))

    def training_labels(self, run: str) -> list[StepLabelFigures]:
        """Label accuracy of the Solver's method in training, by step."""
        rows = self._get(f"/runs/{run}/training-labels", {})
        return TypeAdapter(list[StepLabelFigures]).validate_python(rows)

    def series(self, run: str, **filters: Any) -> list[SeriesPoint]:
        """A run's figures by iteration; only those of `name`, `over` or `oracle` if it is given."""
        return [SeriesPoint(**point) for point in self._get(f"/runs/{run}/series", filters)]

    def alerts(self, run: str | None = None, **filters: Any) -> Iterator[AlertRow]:
        """Alerts of all runs or of one, the newest first; `severity` and `acknowledged` filter them."""
        return (_ALERT.validate_python(item) for item in self._items("/alerts", {"run": run, **filters}))

    def alert(self, alert: str) -> AlertDetail:
        """One alert with its deliveries."""
        return AlertDetail.model_validate(self._get(f"/alerts/{alert}", {}))

    def acknowledge(self, alert: str, by: str | None = None, note: str = "") -> AlertRow:
        """Acknowledge an alert. `by` is needed if the request has no person's key."""
        return _ALERT.validate_python(self._post(f"/alerts/{alert}/acknowledgement", {"by": by, "note": note}))

    def draw(self, run: str, iteration: int, size: int) -> Sample:
        """Draw a sample of `size` questions for people to label, or extend the existing one to `size`."""
        body = {"oracle": "human", "size": size}
        return Sample.model_validate(self._post(f"/runs/{run}/iterations/{iteration}/samples", body))

    def sample(self, run: str, iteration: int, oracle: str = "human") -> Sample:
        """How far an oracle's sample is audited, and the label accuracy so far."""
        return Sample.model_validate(self._get(f"/runs/{run}/iterations/{iteration}/samples/{oracle}", {}))

    def next_to_label(self, run: str, iteration: int, annotator: str | None = None) -> Labelling:
        """The next question for an annotator. `annotator` is needed if the request has no person's key."""
        parameters = {} if annotator is None else {"annotator": annotator}
        return Labelling.model_validate(self._get(f"/runs/{run}/iterations/{iteration}/labelling/next", parameters))

    def say(
        self, run: str, iteration: int, index: int, verdict: OracleVerdict, annotator: str | None = None, note: str = ""
    ) -> Labelling:
        """Say whether a pseudo-label is right, and get the next question."""
        body = {"verdict": verdict, "note": note, "annotator": annotator}
        return Labelling.model_validate(self._post(f"/runs/{run}/iterations/{iteration}/labelling/{index}", body))

    def audits(self, run: str) -> RunAudits:
        """Label accuracy by oracle, estimates with their check, and how far oracles and annotators agree."""
        return RunAudits.model_validate(self._get(f"/runs/{run}/audits", {}))

    def agreement(self, run: str) -> Agreements:
        """Cohen's kappa between oracles, and between annotators."""
        return Agreements.model_validate(self._get(f"/runs/{run}/agreement", {}))

    def api_keys(self) -> list[KeyRow]:
        """API keys, the oldest first, including revoked ones; without the keys themselves."""
        return [_KEY.validate_python(row) for row in self._get("/keys", {})]

    def add_key(self, name: str, scopes: Sequence[Scope] = ("read",)) -> NewKey:
        """Make a key. Only this response contains the key itself."""
        return NewKey.model_validate(self._post("/keys", {"name": name, "scopes": list(scopes)}))

    def revoke_key(self, name: str) -> KeyRow:
        """Revoke a key."""
        return _KEY.validate_python(self._client.send("DELETE", f"/keys/{name}"))

    def _items(self, path: str, filters: dict[str, Any]) -> Iterator[Any]:
        return self._client.items(path, **filters)

    def _get(self, path: str, parameters: dict[str, Any]) -> Any:
        return self._client.get(path, **parameters)

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._client.send("POST", path, json=body)

    @property
    def _client(self) -> Client:
        return Client(self.url, self.key, self.timeout_s, ApiError)
