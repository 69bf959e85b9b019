"""The tokens of each stage, who makes them, and the floating-point operations that they take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from core.settings.config import CoEvolution, RunConfig, SelfTraining
from core.settings.evaluation import OWN_PROMPTS, Protocol
from core.settings.trainers import LocalSettings
from core.settings.training import PlannedTraining, trained_rollouts
from core.types import Stage
from orchestrator.check.size.assumptions import Assumptions
from orchestrator.question_sets.benchmarks import definition_of, evaluated_in, is_here, load_benchmark

BATCH = 128  # questions: that of orchestrator.stages.context
Holder = Literal["trainer", "solver", "challenger"]


@dataclass(frozen=True, slots=True)
class Work:
    """Answers that one holder samples in a stage, or trains on."""

    holder: Holder
    training: bool
    answers: int
    max_tokens: int  # of an answer
    prompts: int  # read once each when sampling: the answers of a prompt share its cache
    why: str  # where `answers` comes from
    rounds: int = 0  # of sampling, one after the other: each lasts as long as its longest answer
    passes: int = 0  # over the parameters, in units of a forward pass of one token; 2 FLOPs a parameter each

    def tokens(self, share: float) -> int:
        """Of the answers alone, at `share` of their limit."""
        return round(self.answers * self.max_tokens * share)

    def flops(self, parameters: int, share: float, prompt_tokens: int) -> float:
        """2 P a token that is sampled or read; `passes` times that where the token is trained on."""
        if self.training:
            return 2.0 * parameters * self.passes * (self.tokens(share) + self.answers * prompt_tokens)
        return 2.0 * parameters * (self.tokens(share) + self.prompts * prompt_tokens)


def work_of(config: RunConfig, stage: Stage, assumed: Assumptions) -> list[Work]:
    """What a stage samples and trains, in order; nothing where it asks no model."""
    made = {
        "train_challenger": _train_challenger,
        "generate_questions": _generate,
        "label_questions": _label,
        "train_solver": _train_solver,
        "train_labelled": _train_labelled,
        "evaluate": _evaluate,
        "evaluate_labelled": _evaluate,
    }.get(stage)
    return [] if made is None else list(made(config, assumed))


def _train_challenger(config: RunConfig, _assumed: Assumptions) -> Iterator[Work]:
    if not isinstance(config, CoEvolution) or not config.challenger.trained:
        return
    challenger, dataset = config.challenger, config.dataset
    sampled, *trained = _training(config, next(p for p in config.trainings if p.table == "challenger"))
    votes = challenger.reward.votes
    yield sampled
    yield Work(
        "solver",
        False,
        sampled.answers * votes,
        dataset.sampling.max_tokens,
        sampled.answers,
        f"{sampled.answers:,} questions x {votes} votes",
        challenger.training.steps,
    )
    yield from trained


def _generate(config: RunConfig, _assumed: Assumptions) -> Iterator[Work]:
    if not isinstance(config, CoEvolution):
        return
    count, limit = config.dataset.candidates, config.challenger.training.sampling.max_tokens
    holder, why = config.application("challenger"), f"{count:,} candidates"
    yield Work(holder, False, count, limit, 1, why, _rounds(config, count))


def _label(config: RunConfig, assumed: Assumptions) -> Iterator[Work]:
    dataset = config.dataset
    count = config.dataset.candidates if isinstance(config, CoEvolution) else _given(config, assumed)
    why = f"{count:,} questions x {dataset.votes} votes"
    yield Work("solver", False, count * dataset.votes, dataset.sampling.max_tokens, count, why, _rounds(config, count))


def _train_solver(config: RunConfig, _assumed: Assumptions) -> Iterator[Work]:
    tables = ("solver", *(() if config.has_branch else ("labelled",)))
    for planned in config.trainings:
        if planned.table in tables:
            yield from _training(config, planned)


def _train_labelled(config: RunConfig, _assumed: Assumptions) -> Iterator[Work]:
    yield from _training(config, next(planned for planned in config.trainings if planned.table == "labelled"))


def _evaluate(config: RunConfig, assumed: Assumptions) -> Iterator[Work]:
    by_protocol: dict[Protocol, list[int]] = {}
    for name, protocol in evaluated_in(config).items():
        by_protocol.setdefault(protocol, []).append(_items(config, name, assumed))
    for protocol, counts in by_protocol.items():
        count, samples, limit = sum(counts), protocol.samples, protocol.sampling.max_tokens
        why = f"{count:,} questions x " + (f"({samples} samples + 1 greedy)" if samples else "1 greedy")
        rounds, requests = sum(_rounds(config, count) for count in counts), (2 if samples else 1) * count
        yield Work("solver", False, count * (samples + 1), limit, requests, why, rounds)


def _training(config: RunConfig, planned: PlannedTraining) -> tuple[Work, ...]:
    """Sampling by the trainer, and the update: forward and backward are 3 passes, and the reference's and the old
    policy's log-probabilities one each.

    The embedded trainer needs the latter with several mini-batches only. With checkpointed activations its forward
    pass is made twice, and it samples no more than `sampling_rows` at once, so that a step has several rounds.
    """
    training, rollouts = planned.training, planned.rollouts
    prompts, limit = training.steps * training.prompts_per_step, training.sampling.max_tokens
    settings, several = config.trainer, training.prompts_per_update not in (None, training.prompts_per_step)
    forward, before, rounds = 1, 1 + several, training.steps
    if isinstance(settings, LocalSettings):
        rows = -(-training.prompts_per_step * rollouts // training.workers)
        rounds *= -(-rows // settings.sampling_rows)
        forward += settings.checkpoint_activations
    else:
        before = 2
    # EasyR1 passes all of a group through the model, those that only vote with an advantage of 0.
    trained = trained_rollouts(rollouts, planned.objective) if isinstance(settings, LocalSettings) else rollouts
    why = f"{training.steps} steps x {training.prompts_per_step} prompts x {rollouts} rollouts"
    learned = why.replace(f"{rollouts} rollouts", f"{trained} rollouts")
    passes = (forward + 2) * training.updates_per_step + before
    return (
        Work("trainer", False, prompts * rollouts, limit, prompts, why, rounds),
        Work("trainer", True, prompts * trained, limit, prompts, learned, passes=passes),
    )


def _rounds(config: RunConfig, questions: int) -> int:
    """How often whoever serves waits for the longest answer of all that are under way."""
    return -(-questions // (BATCH * config.serving.batches))


def _items(config: RunConfig, benchmark: str, assumed: Assumptions) -> int:
    stopping = config.early_stopping
    if benchmark == OWN_PROMPTS and stopping is not None and isinstance(config, SelfTraining):
        return stopping.held_out_of(_given(config, assumed))
    if is_here(benchmark):
        return len(load_benchmark(benchmark))
    return definition_of(benchmark).questions or assumed.benchmark_items


def _given(config: SelfTraining, assumed: Assumptions) -> int:
    if config.test_time:
        return _items(config, config.evaluation.benchmark, assumed)
    return config.prompts.limit or assumed.given_prompts
