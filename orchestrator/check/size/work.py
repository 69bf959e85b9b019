"""The answers that each stage samples and trains on, and who makes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from core.challenger.gates.reordered import Reordered
from core.challenger.gates.solvers import Solvers
from core.settings.config import CoEvolution, RunConfig, SelfTraining
from core.settings.evaluation import OWN_PROMPTS, Protocol
from core.settings.trainers import LocalSettings
from core.settings.training import PlannedTraining, trained_rollouts
from core.types import Stage
from orchestrator.question_sets.benchmarks import definition_of, evaluated_in, is_here, load_benchmark

BATCH = 128  # questions: that of orchestrator.stages.context
_BENCHMARK_QUESTIONS, _PROMPTS = 500, 8000  # where the number is not known on this machine


@dataclass(frozen=True, slots=True)
class Work:
    """Answers that one holder samples in a stage, or trains on."""

    holder: str  # "trainer", or an application
    answers: int
    max_tokens: int  # of an answer
    prompts: int  # read once each when sampling: the answers of a prompt share its cache
    rounds: int = 0  # of sampling, one after the other: each lasts as long as its longest answer
    passes: int = 0  # over the parameters where it trains, in units of a forward pass; 0: it samples
    swaps: int = 0  # of the trainer's weights in an application


def work_of(config: RunConfig, stage: Stage) -> Iterator[Work]:
    """What a stage samples and trains, in order; nothing where it asks no model."""
    dataset, trainings = config.dataset, {planned.table: planned for planned in config.trainings}
    match stage, config:
        case "train_challenger", CoEvolution() if config.challenger.trained:
            sampled, trained = _training(config, trainings["challenger"])
            votes = sampled.answers * config.challenger.reward.votes
            yield sampled
            steps = config.challenger.training.steps
            yield Work("solver", votes, dataset.sampling.max_tokens, sampled.answers, steps)
            yield trained
        case "generate_questions", CoEvolution() if config.challenger.source == "model":
            limit = config.challenger.training.sampling.max_tokens
            count = config.dataset.candidates
            yield Work(config.application("challenger"), count, limit, 1, _rounds(config, count))
        case "label_questions", _:
            count = _given(config) if isinstance(config, SelfTraining) else config.dataset.candidates
            yield Work("solver", count * dataset.votes, dataset.sampling.max_tokens, count, _rounds(config, count))
        case "admit_questions", CoEvolution():
            count = config.dataset.candidates  # the band, and the gates before, may admit all
            for gate in config.gates:
                if isinstance(gate, Solvers | Reordered):
                    asked = (gate.earlier if isinstance(gate, Solvers) else 1) * count
                    rounds = _rounds(config, count) * asked // count
                    yield Work("solver", asked * gate.votes, dataset.sampling.max_tokens, asked, rounds)
        case "train_solver", _:
            if isinstance(config, CoEvolution) and (replay := config.dataset.replay) and replay.label == "newest":
                asked = round(replay.share / (1 - replay.share) * config.dataset.candidates)  # the band may keep all
                yield Work("solver", asked * dataset.votes, dataset.sampling.max_tokens, asked, _rounds(config, asked))
            for table in ("solver", *(() if config.has_branch else ("labelled",))):
                if table in trainings:
                    yield from _training(config, trainings[table])
        case "train_labelled", _:
            yield from _training(config, trainings["labelled"])
        case (("evaluate" | "evaluate_labelled"), _):
            by_protocol: dict[Protocol, list[int]] = {}
            for name, protocol in evaluated_in(config).items():
                by_protocol.setdefault(protocol, []).append(_questions(config, name))
            for protocol, counts in by_protocol.items():  # the samples of a question, and one greedy answer
                count, requests = sum(counts), (2 if protocol.samples else 1) * sum(counts)
                rounds = sum(_rounds(config, each) for each in counts)
                limit = protocol.sampling.max_tokens
                yield Work("solver", count * (protocol.samples + 1), limit, requests, rounds)


def _training(config: RunConfig, planned: PlannedTraining) -> tuple[Work, Work]:
    """Sampling, by the trainer, and the update: forward and backward are 3 passes, and the reference's and the old
    policy's log-probabilities one each. With `trainer.sampler`, an application samples, and all answers at once. With
    `refill` every step samples all the further prompts that it may, in one round more; it trains on no more rows.

    The embedded trainer needs the latter with several mini-batches only. With checkpointed activations its forward
    pass is made twice, and it samples no more than `sampling_rows` at once, so that a step has several rounds.
    """
    training, rollouts, settings = planned.training, planned.rollouts, config.trainer
    prompts, limit = training.steps * training.prompts_per_step, training.sampling.max_tokens
    # EasyR1 passes all of a group through the model, those that only vote with an advantage of 0.
    forward, before, rounds, trained = 1, 2, training.steps, rollouts
    if isinstance(settings, LocalSettings):
        forward += settings.checkpoint_activations
        before = 1 + (training.prompts_per_update not in (None, training.prompts_per_step))
        rows = -(-training.prompts_per_step * rollouts // training.workers)
        rounds *= 1 if config.application_samples else -(-rows // settings.sampling_rows)
        trained = trained_rollouts(rollouts, planned.objective)
    backward = 1 if isinstance(settings, LocalSettings) and settings.lora else 2  # LoRA has no gradients of weights
    passes, sampler, swaps = forward + backward + before, "trainer", 0
    if config.application_samples:
        # vLLM's entropies are estimates, and its log-probabilities are those at temperature 1.
        needs = getattr(planned.objective, "needs", ())
        passes += "mean_entropy" in needs or training.sampling.temperature != 1
        sampler, swaps = config.application("challenger" if planned.table == "challenger" else "solver"), training.steps
    asked, rounds = prompts + training.steps * training.refill, rounds + training.steps * (training.refill > 0)
    return (
        Work(sampler, asked * rollouts, limit, asked, rounds, swaps=swaps),
        Work("trainer", prompts * trained, limit, prompts, passes=passes),
    )


def _rounds(config: RunConfig, questions: int) -> int:
    """How often whoever serves waits for the longest answer of all that are under way."""
    return -(-questions // (BATCH * config.serving.batches))


def _questions(config: RunConfig, benchmark: str) -> int:
    stopping = config.early_stopping
    if benchmark == OWN_PROMPTS and stopping is not None and isinstance(config, SelfTraining):
        return stopping.held_out_of(_given(config))
    if is_here(benchmark):
        return len(load_benchmark(benchmark))
    return definition_of(benchmark).questions or _BENCHMARK_QUESTIONS


def _given(config: SelfTraining) -> int:
    if config.test_time:
        return _questions(config, config.evaluation.benchmark)
    return config.prompts.limit or _PROMPTS
