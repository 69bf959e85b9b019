"""A client of the REST API, for programs, `coevo questions` and `coevo runs`.

api = ApiClient("http://127.0.0.1:8080")
for question in api.questions("demo", 1, verdict=["kept"], sort="-p_hat"):
    print(question.p_hat, question.text)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter

from core.types import Checkpoint, OracleVerdict, Role
from services.api.administration import NewKey
from services.api.alerts import AlertDetail
from services.api.audits import Agreements, RunAudits, Sample
from services.api.labelling import Labelling
from services.api.pages import LARGEST_PAGE
from services.api.question_schemas import Question, QuestionDetail, Statistics
from services.api.schemas import (
    CheckpointDetail,
    Evaluation,
    FlowRunState,
    IterationSummary,
    Job,
    Manifest,
    Run,
    RunDetail,
    Stage,
    Triggered,
)
from services.api.traces import ClusterSummary, VoteText
from services.api.transport import ApiError, Transport
from storage.rows import AlertRow, KeyRow, Scope, SeriesPoint, StepLabelFigures, TrainMetric

if TYPE_CHECKING:
    from storage.exports import Format, Only  # which bring Arrow in

__all__ = ["ApiClient", "ApiError"]
_ALERT, _KEY = TypeAdapter(AlertRow), TypeAdapter(KeyRow)


@dataclass(frozen=True, slots=True)
class ApiClient:
    """Talks to the API at `url`, with a key where it asks for one. Every method raises `ApiError`."""

    url: str
    key: str | None = None
    timeout_s: float = 30.0

    def runs(self) -> Iterator[Run]:
        """All runs, the newest first."""
        return (Run.model_validate(item) for item in self._items("/runs", {}))

    def run(self, name: str) -> RunDetail:
        """One with its configuration."""
        return RunDetail.model_validate(self._get(f"/runs/{name}", {}))

    def stages(self, run: str) -> list[Stage]:
        """The ledger, by iteration and start."""
        return [Stage.model_validate(row) for row in self._get(f"/runs/{run}/stages", {})]

    def pool(self) -> list[Job]:
        """The worker pool: trainings that wait, are at work, or were."""
        return [Job.model_validate(row) for row in self._get("/pool", {})]

    def iterations(self, run: str) -> list[IterationSummary]:
        """Those that were begun, with their stages."""
        return [IterationSummary.model_validate(row) for row in self._get(f"/runs/{run}/iterations", {})]

    def create_run(
        self, name: str, preset: str, *, iterations: int | None = None, overrides: Mapping[str, Any] | None = None
    ) -> Triggered:
        """Start a run; what it is made of is checked before (docs/api.md)."""
        wanted = {"name": name, "preset": preset, "iterations": iterations, "overrides": dict(overrides or {})}
        return Triggered.model_validate(self._post("/runs", wanted))

    def flow_runs(self, run: str | None = None) -> list[FlowRunState]:
        """Of each run, or of one, the newest flow run that waits, is at work, or failed or was cancelled lately."""
        wanted = {} if run is None else {"run": run}
        return [FlowRunState.model_validate(item) for item in self._get("/flow-runs", wanted)]

    def cancel(self, run: str, why: str | None = None) -> list[Triggered]:
        """End what is at a run, or waits to be."""
        return [Triggered.model_validate(row) for row in self._post(f"/runs/{run}/cancel", {"why": why})]

    def resume(self, run: str, iterations: int | None = None) -> Triggered:
        """Go on with a run where it was, or for longer."""
        return Triggered.model_validate(self._post(f"/runs/{run}/resume", {"iterations": iterations}))

    def decide(self, run: str, decision: str, note: str = "") -> Triggered:
        """Answer a run that is paused: go on, roll back, or stop."""
        return Triggered.model_validate(self._post(f"/runs/{run}/decision", {"decision": decision, "note": note}))

    def questions(self, run: str, iteration: int, **wanted: Any) -> Iterator[Question]:
        """The questions of an iteration, a page at a time; `wanted` is what the route takes (docs/api.md)."""
        path = f"/runs/{run}/iterations/{iteration}/questions"
        return (Question.model_validate(item) for item in self._items(path, wanted))

    def question(self, run: str, iteration: int, index: int) -> QuestionDetail:
        """One with every vote."""
        return QuestionDetail.model_validate(self._get(f"/runs/{run}/iterations/{iteration}/questions/{index}", {}))

    def vote(self, run: str, iteration: int, index: int, sample: int) -> VoteText:
        """One vote of a question with what the Solver wrote, where the run keeps it."""
        path = f"/runs/{run}/iterations/{iteration}/questions/{index}/votes/{sample}"
        return VoteText.model_validate(self._get(path, {}))

    def clusters(self, run: str, iteration: int, limit: int = 20) -> list[ClusterSummary]:
        """Questions that are alike, the largest clusters first."""
        rows = self._get(f"/runs/{run}/iterations/{iteration}/clusters", {"limit": limit})
        return [ClusterSummary.model_validate(row) for row in rows]

    def statistics(self, run: str, iteration: int) -> Statistics:
        return Statistics.model_validate(self._get(f"/runs/{run}/iterations/{iteration}/statistics", {}))

    def manifest(self, run: str, iteration: int, kind: Format, only: Only = "all") -> Manifest:
        """What the export of an iteration holds, and what made it."""
        path = f"/runs/{run}/iterations/{iteration}/exports/{kind}/manifest"
        return Manifest.model_validate(self._get(path, {"only": only}))

    def export(self, run: str, iteration: int, kind: Format, to: Path, only: Only = "all") -> Manifest:
        """Write the export of an iteration to a file, which is there once it is whole. Its part is kept beside it when
        the connection breaks, and another call goes on from there."""
        manifest = self.manifest(run, iteration, kind, only)
        self._asking.file(f"/runs/{run}/iterations/{iteration}/exports/{kind}", manifest, to, params={"only": only})
        return manifest

    def checkpoints(self, run: str) -> list[Checkpoint]:
        """By iteration, the base model first."""
        return [Checkpoint(**row) for row in self._get(f"/runs/{run}/checkpoints", {})]

    def checkpoint(self, run: str, role: Role | Literal["base"], iteration: int) -> CheckpointDetail:
        """One with its files, and what came from which."""
        return CheckpointDetail.model_validate(self._get(f"/runs/{run}/checkpoints/{role}/{iteration}", {}))

    def evaluations(self, run: str) -> list[Evaluation]:
        """How its checkpoints did on benchmarks."""
        return [Evaluation.model_validate(row) for row in self._get(f"/runs/{run}/evaluations", {})]

    def metrics(self, run: str, **wanted: Any) -> list[TrainMetric]:
        """Training metrics by step; those of an `iteration`, `role` or `name` where it is given."""
        return [TrainMetric(**row) for row in self._get(f"/runs/{run}/metrics", wanted)]

    def training_labels(self, run: str) -> list[StepLabelFigures]:
        """Label accuracy of the Solver's method in training, by step."""
        rows = self._get(f"/runs/{run}/training-labels", {})
        return TypeAdapter(list[StepLabelFigures]).validate_python(rows)

    def series(self, run: str, **wanted: Any) -> list[SeriesPoint]:
        """A run's figures by iteration; those of a `name`, `over` or `oracle` where it is given."""
        return [SeriesPoint(**point) for point in self._get(f"/runs/{run}/series", wanted)]

    def alerts(self, run: str | None = None, **wanted: Any) -> Iterator[AlertRow]:
        """Alerts of all runs or of one, the newest first; `severity` and `acknowledged` choose among them."""
        return (_ALERT.validate_python(item) for item in self._items("/alerts", {"run": run, **wanted}))

    def alert(self, alert: str) -> AlertDetail:
        """One, and how it fares on its way to each target."""
        return AlertDetail.model_validate(self._get(f"/alerts/{alert}", {}))

    def acknowledge(self, alert: str, by: str | None = None, note: str = "") -> AlertRow:
        """Say that somebody has seen to it; who, where the API asks for no keys."""
        return _ALERT.validate_python(self._post(f"/alerts/{alert}/acknowledgement", {"by": by, "note": note}))

    def draw(self, run: str, iteration: int, size: int) -> Sample:
        """Draw a sample for people to label, of `size` in all, or extend the one that there is."""
        wanted = {"oracle": "human", "size": size}
        return Sample.model_validate(self._post(f"/runs/{run}/iterations/{iteration}/samples", wanted))

    def sample(self, run: str, iteration: int, oracle: str = "human") -> Sample:
        """How far an oracle's sample is audited, and what it comes to."""
        return Sample.model_validate(self._get(f"/runs/{run}/iterations/{iteration}/samples/{oracle}", {}))

    def next_to_label(self, run: str, iteration: int, annotator: str | None = None) -> Labelling:
        """The next question for an annotator; who that is, where the API asks for no keys."""
        wanted = {} if annotator is None else {"annotator": annotator}
        return Labelling.model_validate(self._get(f"/runs/{run}/iterations/{iteration}/labelling/next", wanted))

    def say(
        self, run: str, iteration: int, index: int, verdict: OracleVerdict, annotator: str | None = None, note: str = ""
    ) -> Labelling:
        """Say whether a pseudo-label is right; the next question comes back."""
        word = {"verdict": verdict, "note": note, "annotator": annotator}
        return Labelling.model_validate(self._post(f"/runs/{run}/iterations/{iteration}/labelling/{index}", word))

    def audits(self, run: str) -> RunAudits:
        """Label accuracy by oracle with what it was asked of, estimates with their check, and who agrees with whom."""
        return RunAudits.model_validate(self._get(f"/runs/{run}/audits", {}))

    def agreement(self, run: str) -> Agreements:
        """Cohen's kappa between oracles, and between annotators."""
        return Agreements.model_validate(self._get(f"/runs/{run}/agreement", {}))

    def api_keys(self) -> list[KeyRow]:
        """API keys, the oldest first, those revoked among them; not the keys themselves."""
        return [_KEY.validate_python(row) for row in self._get("/keys", {})]

    def add_key(self, name: str, scopes: Sequence[Scope] = ("read",)) -> NewKey:
        """Make a key, which is said this once."""
        return NewKey.model_validate(self._post("/keys", {"name": name, "scopes": list(scopes)}))

    def revoke_key(self, name: str) -> KeyRow:
        """Let a key do nothing from now on."""
        return _KEY.validate_python(self._send("DELETE", f"/keys/{name}"))

    def _items(self, path: str, wanted: dict[str, Any]) -> Iterator[Any]:
        given = {"limit": LARGEST_PAGE, **{name: value for name, value in wanted.items() if value is not None}}
        while True:
            page = self._get(path, given)
            yield from page["items"]
            if page["next"] is None:
                return
            given = {**given, "after": page["next"]}

    def _get(self, path: str, wanted: dict[str, Any]) -> Any:
        return self._send("GET", path, params=wanted)

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._send("POST", path, json=body)

    def _send(self, method: str, path: str, **sent: Any) -> Any:
        return self._asking.json(method, path, **sent)

    @property
    def _asking(self) -> Transport:
        return Transport(self.url, self.key, self.timeout_s)
