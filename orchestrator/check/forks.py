"""May a run begin after an iteration of another one, whose iterations up to that one it inherits?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy.orm import Session
from typing_extensions import override

from core.settings.config import CoEvolution, RunConfig
from core.settings.evaluation import OWN_PROMPTS
from core.settings.parsing import ConfigError, changed_config
from core.settings.trees import flat
from core.validation.faults import Fault
from orchestrator.installation.home import Home
from orchestrator.plan import stages_of
from orchestrator.stages.chain import Chain
from storage import queries
from storage.queries.runs import RUN_NAME

FROM = "from_run"  # the parameter, in faults
_FROM_RUN = re.compile(rf"({RUN_NAME.pattern}):([0-9]{{1,6}})")


class ForkPoint(NamedTuple):
    """After which iteration of which run a fork begins."""

    run: str
    last: int

    @override
    def __str__(self) -> str:
        return f"{self.run}:{self.last}"


def fork_point(text: str) -> ForkPoint | None:
    """The run and the iteration that a text such as `demo:3` names; None for any other text."""
    match = _FROM_RUN.fullmatch(text)
    return match and ForkPoint(match[1], int(match[2]))


def forked_config(
    session: Session, name: str, point: ForkPoint, iterations: int, overrides: Mapping[str, Any], overrides_are: str
) -> RunConfig:
    """The settings of a fork of this name: those of the other run, except for the overrides and, unless it is 0, the
    number of iterations. Raises `NotThere`, `ConfigError`."""
    tree = queries.runs.config_of_run(session, point.run).model_dump(mode="json")
    if name in queries.runs.runs_named(session, [name]):  # the limits of both may have changed since it began
        own = queries.runs.config_of_run(session, name).model_dump(mode="json")
        tree |= {limit: own[limit] for limit in queries.runs.LIMITS}
    if (kind := overrides.get("kind", tree["kind"])) != tree["kind"]:  # else each setting of the other kind is a fault
        fault = _ruled_out(point, "kind", tree["kind"], kind)
        raise ConfigError(str(fault), [fault])
    length = {"iterations": iterations} if iterations > 0 else {}
    return changed_config(tree, f"run {point.run}", {**overrides, **length}, overrides_are)


def unforkable(session: Session, name: str, point: ForkPoint, config: RunConfig, home: Home | None) -> Iterator[Fault]:
    """What keeps a run of this name and these settings from beginning after an iteration of another run.

    `home` has the optimisers' moments; None: they are elsewhere, and are not looked for. Raises `NotThere` if there is
    no such other run.
    """
    of, last = point
    its_config, expected = queries.runs.config_of_run(session, of), queries.forks.makers(session, of, last)
    if name in queries.runs.runs_named(session, [name]):  # then it goes on, if it is this fork
        if (got := queries.forks.inherited(session, name)) != expected:
            begins = f"begins after {got[max(got)]}:{max(got)}" if got else "is no fork"
            yield Fault("name", f"run {name}: exists and {begins}; expected one that begins after {point}")
        return
    if last > (finished := _last_finished(session, of, its_config)):
        which = f"at most {of}:{finished}, the last that is finished" if finished >= 0 else "one that is finished"
        yield Fault(FROM, str(point), which)
        return
    for t in range(1, last + 1):
        if (action := queries.ledger.decision(session, of, t)["action"]) in ("pause", "stop"):
            ended = "waits for a person's decision" if action == "pause" else "was stopped"
            yield Fault(FROM, str(point), f"at most {of}:{t - 1}, because the run {ended} after iteration {t}")
            return
    if config.iterations <= last:
        yield Fault("iterations", f"{config.iterations}", f"more than {last}, since the run begins after {point}")
    replay = config.dataset.replay if isinstance(config, CoEvolution) else None
    if replay is not None and replay.label == "newest":
        why = "the questions of another run get no votes in this one"
        yield Fault("dataset.replay.label", "'newest'", "'first'", why)
    faults = [*_all_ruled_out(point, its_config, config)]
    yield from faults
    if not faults:
        yield from _missing_files(session, point, config, home)


def _last_finished(session: Session, run: str, config: RunConfig) -> int:
    """The last iteration before which, and in which, all stages are done; -1 if there is none."""
    rows = queries.ledger.stages_of(session, run)
    done = {(row.iteration, row.stage) for row in rows if row.status == "done"}
    first = queries.forks.begins_at(session, run)
    for t in range(first, config.iterations + 1):
        if not all((t, stage) in done for stage in stages_of(config, t)):
            return t - 1
    return config.iterations


def _all_ruled_out(point: ForkPoint, of: RunConfig, config: RunConfig) -> Iterator[Fault]:
    """The settings that the inherited iterations do not allow: their models, their prompts and what these are labelled
    with were made with others."""
    known, wanted = (flat(one.model_dump(mode="json")) for one in (of, config))
    fixed = ["base_model", "shared"]
    if not isinstance(config, CoEvolution):
        fixed += ["prompts", *(["dataset"] if config.votes_before_training else [])]
        fixed += ["evaluation.benchmark"] if config.test_time else []
        stopping = config.early_stopping  # the prompts that it holds out are drawn with the seed
        fixed += ["seed"] if stopping is not None and stopping.benchmark == OWN_PROMPTS else []
    for name in sorted({*known, *wanted}):
        is_fixed = any(name == of_others or name.startswith(f"{of_others}.") for of_others in fixed)
        if is_fixed and known.get(name) != wanted.get(name):
            yield _ruled_out(point, name, known.get(name), wanted.get(name))


def _ruled_out(point: ForkPoint, setting: str, expected: object, got: object) -> Fault:
    return Fault(setting, f"{got!r}", f"{expected!r}", f"the iterations up to {point} were made with it")


def _missing_files(session: Session, point: ForkPoint, config: RunConfig, home: Home | None) -> Iterator[Fault]:
    """The checkpoints that the fork may begin with or go back to, and the optimiser's moments, if they were removed."""
    chain = Chain(session, point.run, config, point.last + 1)
    needed = {role: chain.checkpoint(role, point.last) for role in config.roles}
    best = chain.checkpoints_at(chain.best_to_go_back_to()).values()
    for key in sorted({*(checkpoint.id for checkpoint in needed.values()), *best}):
        if queries.checkpoints.get_checkpoint(session, key).files_removed:
            got = f"{point}, but the files of {key} were removed, as checkpoints.keep says"
            yield Fault(FROM, got, "one whose checkpoints are there")
    start = needed["solver"]
    if config.rounds_are_one_training and start.role == "solver" and home is not None:
        result = queries.ledger.result_of(session, start.run, start.iteration, "train_solver") or {}
        if "optimiser" not in result or not home.moments(start).is_dir():
            got = f"'continued', but the optimiser's moments of {start.id} are not there any more"
            yield Fault("solver.training.optimiser", got, "'fresh'", "or begin after the last round")
