"""All that `coevo check PRESET` says: what the preset is, what is missing on this machine, and what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from core.settings.parsing import ConfigError
from core.validation.faults import Fault
from orchestrator.check.forks import fork_point
from orchestrator.check.machine.examine import OF_PRESET, Result, examine
from orchestrator.check.machine.result import Subject
from orchestrator.check.needs import gpu_memory_here
from orchestrator.check.presets import Described, described
from orchestrator.check.refusals import doubtful
from orchestrator.check.size.estimate import GPU_MEMORY, Estimate, advice, estimate
from orchestrator.check.size.measured import Measured, measured
from orchestrator.check.size.memory import disk_lines
from orchestrator.check.size.shapes import SizingError
from orchestrator.check.start import find_run, startable, store_of
from orchestrator.costs import BudgetSpent, refuse_spent
from orchestrator.installation import cluster
from orchestrator.installation.home import Home
from orchestrator.question_sets.benchmarks import BenchmarkError


@dataclass(frozen=True, slots=True)
class Answers:
    """`faults` keep the run from starting; `warnings` are about what it waits for or can do without. `results` are what
    was tried on this machine. What is not known, because the settings are wrong, is None."""

    run: str
    preset: str
    faults: list[Fault]
    warnings: list[Fault]
    results: list[Result]
    described: Described | None = None
    estimate: Estimate | None = None
    measured: Measured | None = None

    @property
    def count_of_faults(self) -> int:
        return len(self.faults) + sum(result.status == "fault" for result in self.results)


def answers_for(
    home: Home,
    run: str,
    preset: str,
    iterations: int,
    overrides: Mapping[str, Any],
    overrides_are: str,
    gpu_memory: float | None = None,
    from_run: str = "",
) -> Answers:
    """Everything about a run of a preset, or about one that begins after an iteration of another (`from_run`). Nothing
    is started or written, and no benchmark is fetched.

    `gpu_memory`: GiB of one GPU; None: that of this machine's, or else 80. Raises `StoreError`.
    """
    store = store_of(home)
    asked = run, preset, iterations, overrides
    config, faults = startable(store, *asked, overrides_are=overrides_are, from_run=from_run, fetch=False)
    if config is None:
        return Answers(run, preset or from_run, faults, [], [])
    warnings, estimated, of_runs, what = list[Fault](), None, None, None
    to_do, preset_of, comment = config, preset, None
    if (point := fork_point(from_run)) is not None and store is not None:
        iterations_left = max(1, config.iterations - point.last)
        to_do = config.model_copy(update={"iterations": iterations_left})  # what is inherited costs nothing
        comment = f"A fork, which begins after iteration {point.last} of {point.run}."
        other = find_run(store, point.run)
        preset_of = (other and other.preset) or ""
    try:
        if store is not None:
            refuse_spent(store, run, config)
    except BudgetSpent as error:  # of an existing run, which would end at its next stage
        warnings.append(Fault("budget", str(error)))
    if not cluster.running(home):
        warnings.append(Fault("services", "none are running here", remedy="start them with `coevo up`"))
    try:
        try:
            estimated = estimate(to_do, gpu_memory or gpu_memory_here() or GPU_MEMORY)
        except (ConfigError, SizingError) as error:  # often a fault of the run too
            warnings.append(Fault("estimate", f"it cannot be computed: {error}"))
        what = described(preset or from_run, config, estimated, comment)
        warnings += doubtful(config, what.gpus)
    except BenchmarkError as error:  # one that is not known is one of the faults
        warnings.append(Fault("estimate", f"it cannot be computed: {error}"))
    if estimated is not None:
        warnings += [Fault("memory", f"by arithmetic it does not fit: {problem}") for problem in estimated.problems]
        if store is not None and preset_of:
            with store.read() as session:
                of_runs = measured(session, preset_of, estimated)
    results = [*examine(Subject(home, config), OF_PRESET)]
    return Answers(run, preset or from_run, faults, warnings, results, what, estimated, of_runs)


def as_json(answers: Answers) -> dict[str, Any]:
    """All of it, and the figures behind it."""

    def rows(faults: list[Fault]) -> list[dict[str, Any]]:
        return [{**asdict(fault), "text": str(fault)} for fault in faults]

    needed = None
    if (estimated := answers.estimate) is not None:
        disk = disk_lines(estimated.config)
        needed = {
            "gpus": estimated.gpus,
            "gpu_memory": estimated.gpu_memory,
            "fits": not estimated.problems,
            "advice": advice(estimated),
            "parameters": estimated.shape.parameters,
            "layout": asdict(estimated.layout),
            "before": [asdict(stage) for stage in estimated.before],
            "stages": [asdict(stage) for stage in estimated.stages],
            "memory": [{**asdict(part), "gib": part.gib} for part in estimated.memory],
            "disk": disk,
            "disk_gib": sum(disk.values()),
            "hours": estimated.hours,
            "run_hours": estimated.run_hours,
        }
    return {
        "run": answers.run,
        "preset": answers.preset,
        "faults": rows(answers.faults),
        "warnings": rows(answers.warnings),
        "checks": [asdict(result) for result in answers.results],
        "details": answers.described and asdict(answers.described),
        "estimate": needed,
        "measured": answers.measured and asdict(answers.measured),
    }
