"""What `coevo evaluate` and the flow `evaluate` are asked for, and how it is done."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import model_validator

from core.asking.service import Service
from core.errors import CoevoError
from core.grading.grader import process_grader
from core.settings.evaluation import Benchmark, Columns, Protocol
from core.settings.parsing import validated
from core.settings.serving import Serving
from core.types import evaluation_id
from core.validation.bounds import Count, Seed, SettingsTable
from orchestrator.evaluation.answering import SMALL_BATCH, answer_all
from orchestrator.evaluation.manifest import begin, key_of
from orchestrator.evaluation.models import find_model
from orchestrator.installation.home import Home
from orchestrator.question_sets.benchmarks import load, read_suite
from orchestrator.question_sets.rows import is_path
from orchestrator.run import Progress
from services.evaluations.figures import EvaluationFigures, figures_of
from services.views.reasons import turn_note
from storage import queries
from storage.files.texts import TextWriter, evaluation_path
from storage.session import Store


class RequestError(CoevoError):
    """A request for an evaluation that cannot be met; the message names the parameter."""


class EvaluationRequest(SettingsTable):
    """Which model to ask which benchmarks, and how. `protocol` is for the benchmarks that `suite` does not name.

    `model` is a run's (`services.evaluations.figures.RUN_MODEL`), a folder, or a URL, whose model is `served_model`.
    """

    model: str
    benchmarks: tuple[str, ...] = ()
    suite: str | None = None
    protocol: Protocol = Protocol()
    limit: Count = 0  # ask only a sample of so many questions; 0 asks all
    seed: Seed = 0
    columns: Columns = Columns()  # of files that are given by their paths
    applications: str | None = None  # a file of deploy/serve; None: the run's own, or the embedded engine
    served_model: str | None = None
    key_variable: str | None = None  # the environment variable with the URL's key

    @model_validator(mode="after")
    def _names_a_benchmark(self) -> EvaluationRequest:
        if not self.benchmarks and self.suite is None:
            raise ValueError("benchmarks: expected a benchmark's name, a file, or a suite, got none")
        return self

    @property
    def service(self) -> Service | None:
        """The service at a URL; None for other models. Raises `RequestError`, `ConfigError`."""
        is_url = self.model.startswith(("http://", "https://"))
        if is_url and self.served_model is None:
            raise RequestError(f"--model: expected the model's name at {self.model}, got none")
        if not is_url and (self.served_model is not None or self.key_variable is not None):
            raise RequestError(f"--model and --key-variable: expected only with a URL, got {self.model!r}")
        described = {"url": self.model.rstrip("/"), "model": self.served_model, "key_variable": self.key_variable}
        return validated(Service, described, f"model {self.model}") if is_url else None


def evaluate(home: Home, store: Store, request: EvaluationRequest, progress: Progress) -> list[EvaluationFigures]:
    """Ask what has no stored answer yet, and return the figures, one for each benchmark.

    Raises `RequestError`, `BenchmarkError` and what `find_model` raises, before anything is asked; and
    `InferenceError`, `ServeError` and `GradingError`. What was answered before stays stored.
    """
    service, own = request.service, Benchmark(title="", source="", columns=request.columns)
    suite = read_suite(request.suite) if request.suite is not None else None
    names = dict.fromkeys([*request.benchmarks, *(suite.benchmarks if suite else ())])
    loaded = [load(name, own if is_path(name) else None, request.limit) for name in names]
    of_suite = suite.protocols() if suite else {}
    serving = Serving(applications=request.applications) if request.applications is not None else None
    model = find_model(home, store, request.model, serving, service)
    benchmarks = [benchmark.asked_with(model.template) for benchmark in loaded]
    protocols = [of_suite.get(benchmark.name, request.protocol) for benchmark in benchmarks]
    asked = [
        (benchmark, protocol, evaluation_id(*key_of(model, benchmark, protocol, request.seed)))
        for benchmark, protocol in zip(benchmarks, protocols, strict=True)
    ]
    with store.read() as session:
        rows = [queries.evaluations.find_evaluation(session, key) for *_, key in asked]
    finished = {row.id for row in rows if row is not None and row.finished_at is not None}
    if unfinished := [row for row in asked if row[2] not in finished]:
        progress(0, 1, "waiting for the model")
        refusal = model.join()
        if refusal is not None and not all(protocol.samples for _, protocol, _ in unfinished):
            raise RequestError(
                f"samples: expected at least 1 of each question without greedy answers, got 0; {refusal}"
            )
        with store.write() as session:  # from now on, the files of the checkpoint are kept
            if model.checkpoint is not None:
                queries.checkpoints.lock(session, [model.checkpoint])
                if queries.checkpoints.get_checkpoint(session, model.checkpoint).files_removed:
                    removed = f"the files of {model.checkpoint} were just removed, as checkpoints.keep says"
                    raise RequestError(f"model: {removed}")
            begun = [
                begin(session, model, benchmark, protocol, request.seed, greedy=refusal is None)
                for benchmark, protocol, _ in unfinished
            ]
        with model.serve(lambda holder: progress(0, 1, turn_note(holder))) as ask:
            for (benchmark, protocol, key), row in zip(unfinished, begun, strict=True):
                texts = TextWriter(evaluation_path(home.texts, key))
                grader = process_grader()
                with _alone(home, key, progress):
                    answer_all(store, row, benchmark, protocol, request.seed, ask, grader, progress, texts, SMALL_BATCH)
    with store.read() as session:
        return [figures for *_, key in asked if (figures := figures_of(session, key))]


@contextmanager
def _alone(home: Home, key: str, progress: Progress) -> Iterator[None]:
    """Wait until no other process of this home works on the evaluation, and keep others from it during the block.

    Otherwise two that ask a URL at once would store the answers of one and the texts of the other.
    """
    with (home.path / "evaluations.lock").open("a") as lock:
        byte = int(key, 16) >> 2  # each evaluation locks a byte of its own, beyond the end of the empty file
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except BlockingIOError:
            progress(0, 1, "waiting for another process that works on the same evaluation")
            fcntl.lockf(lock, fcntl.LOCK_EX, 1, byte)
        yield
