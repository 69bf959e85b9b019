"""What the API has besides its store: folders, files, services, and what only the orchestrator knows of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.settings.config import RunConfig
from core.settings.evaluation import Suite
from services.api.problems import invalid
from services.prefect.server import PrefectServer
from services.views.remaining import Key
from storage.session import Store


@dataclass(frozen=True, slots=True)
class QuestionSets:
    """The names of the benchmarks that this server has, and its suites by name."""

    benchmarks: tuple[str, ...] = ()
    suites: Mapping[str, Suite] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        return frozenset([*self.benchmarks, *self.suites])

    def refuse_unknown(self, benchmarks: Sequence[str], suite: str | None, where: str, field: str) -> None:
        """Raise `RequestValidationError` if a benchmark or the suite is not one of these, or none is named.

        `where` is the part of the request, "body" or "query", and `field` its field with the benchmarks.
        """
        for name in benchmarks:
            if name not in self.benchmarks:
                raise invalid(field, f"expected one of {', '.join(self.benchmarks) or 'none'}, got {name!a}", where)
        if suite is not None and suite not in self.suites:
            raise invalid("suite", f"expected one of {', '.join(self.suites) or 'none'}, got {suite!a}", where)
        if not benchmarks and suite is None:
            raise invalid(field, "expected a benchmark's name or a suite, got none", where)


@dataclass(frozen=True, slots=True)
class Installation:
    """What the API has besides its store. What is None is not available, and what was made of it is not shown.

    The functions are those of the orchestrator, which no service imports.
    """

    prefect: PrefectServer | None = None  # starts runs, from the preset files in `presets`
    ray_answers: Callable[[], bool] | None = None
    presets: Path | None = None
    papers: Path | None = None  # the file deploy/runs/papers.tsv, with what the papers state
    texts: Path | None = None  # the folder with the texts of rollouts
    run_logs: Path | None = None
    question_sets: QuestionSets = field(default_factory=QuestionSets)  # that a caller may name
    # The stages of a run with their iterations, in order.
    planned: Callable[[RunConfig], Iterable[Key]] = lambda _config: ()
    # Raises a `CoevoError` that names the setting if a run cannot start; the flag says whether it is a new run.
    refuse_unready: Callable[[RunConfig, bool], None] = lambda _config, _new: None
    # Raises a `CoevoError` that names the setting if no run of this name, which is the third, can begin after an
    # iteration of another one, such as demo:3, with these settings.
    refuse_unforkable: Callable[[Store, str, str, RunConfig], None] = lambda _store, _at, _name, _config: None
    # What a preset of this name needs and costs, as `PresetDetails`. Raises `CoevoError` if that is not known.
    describe_preset: Callable[[str], Mapping[str, Any]] | None = None

    def preset_files(self) -> dict[str, Path]:
        """The files of the presets, by name."""
        return {} if self.presets is None else {path.stem: path for path in self.presets.glob("*.toml")}
