"""Checks whether EasyR1 can do a training as configured, and lists where it then differs from the embedded trainer.

EasyR1's own estimators are not used. The reward shim computes the advantages with `core.methods`, like the embedded
trainer, and passes them to EasyR1 as rewards. EasyR1's RLOO returns `N/(N-1) (s - mean s)` for rewards s, so the reward
`(N-1)/N A` gives the advantage A back if the advantages of a group sum to zero. The checks here are about the rest of
the objective.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from core.methods import Method, Objective, Signal
from core.settings.trainers import EasyR1Settings
from core.settings.training import Training
from core.validation.faults import Fault
from trainers.easyr1 import PINNED, corrections

# The signals that the reward function can provide. EasyR1 passes it no token entropies.
SIGNALS: frozenset[Signal] = frozenset({"label", "embeddings", "clusters"})


def uneven(training: Training, rollouts: int, settings: EasyR1Settings) -> Iterator[Fault]:
    """The settings with which EasyR1 cannot divide the batches evenly among the GPUs.

    EasyR1 itself checks this (fsdp_workers.py, ray_trainer.py, protocol.py) only after the GPUs have been reserved.
    """
    gpus, prompts = settings.nodes * settings.gpus_per_node, training.prompts_per_update or training.prompts_per_step
    divisions = (
        (f"{prompts} prompts x {rollouts} rollouts of an update", prompts * rollouts, "gpus_per_node", gpus),
        ("a step's prompts, which it repeats only afterwards,", training.prompts_per_step, "gpus_per_node", gpus),
        (
            "the sequences of an update on one GPU",
            prompts * rollouts // gpus,
            "update_micro_batch",
            settings.update_micro_batch,
        ),
        ("the GPUs", gpus, "tensor_parallel", settings.tensor_parallel),
    )
    for items, count, name, parts in divisions:
        if count == 0 or count % parts:
            got = f"{parts} GPUs on {settings.nodes} nodes" if parts is gpus and settings.nodes > 1 else f"{parts}"
            yield Fault(f"trainer.{name}", got, f"a divisor of {count}", f"EasyR1 divides {items} evenly")
            if name == "gpus_per_node":  # the other divisions follow from it
                return


def checkout_problem(source: Path) -> str | None:
    """The reason why `trainer.source` is not an EasyR1 that we can start, or None if it is one."""
    main = source / "verl" / "trainer" / "main.py"
    if not main.is_file():
        return f"trainer.source: expected a checkout of EasyR1, there is no {main}"
    if reason := corrections.unknown(source):
        return (
            f"trainer.source: expected a checkout of EasyR1 {PINNED}, because coevo corrects the seeds of its rollouts "
            f"(trainers/easyr1/corrections.py); this checkout is different: {reason}"
        )
    return None


def unfit(
    name: str,
    training: Training,
    objective: Objective,
    *,
    own_reference: bool = False,
    continued: bool = False,
    vocabulary_retention: float = 1.0,
) -> Iterator[Fault]:
    """The settings of a training that EasyR1 cannot follow.

    `name` is the preset's table: "challenger", "solver" or "labelled". With `own_reference`, the KL is measured against
    another model than the one that the training starts from. With `continued`, it is one of several rounds of a
    training.
    """
    if isinstance(objective, Method):
        for signal in sorted(objective.needs - SIGNALS):
            reason = (
                "EasyR1's reward function gets texts only, so it cannot provide this signal; it can provide "
                f"{', '.join(sorted(SIGNALS))}"
            )
            yield Fault(f"{name}.reward.type", f"{objective.type!r}, which needs {signal}", "another method", reason)
    if objective.entropy_coefficient > 0:
        got = f"{objective.entropy_coefficient:g}"
        yield Fault(f"{name}.reward.entropy_coefficient", got, "0", "EasyR1 has no entropy bonus")
    if objective.kl_in == "reward" and objective.kl_coefficient > 0 and objective.advantage != "rloo":
        reason = "kl_in = 'reward' needs advantage 'rloo', which is linear in the rewards"
        yield Fault(f"{name}.reward.advantage", repr(objective.advantage), "'rloo'", reason)
    if objective.loss_average == "max_length" and objective.kl_coefficient > 0:
        # The shim gets this average from EasyR1's mean over tokens by scaling the rewards with the answers' lengths. It
        # cannot scale the KL.
        reason = "or a kl_coefficient of 0"
        yield Fault(f"{name}.reward.loss_average", "'max_length'", "'token' or 'sequence'", reason)
    size = training.prompts_per_update
    if size is not None and training.prompts_per_step % size:
        expected = f"a divisor of prompts_per_step = {training.prompts_per_step}"
        yield Fault(f"{name}.training.prompts_per_update", f"{size}", expected)
    if size not in (None, training.prompts_per_step) and objective.loss_average == "max_length":
        expected = "all of a step's prompts, with loss_average 'max_length'"
        yield Fault(f"{name}.training.prompts_per_update", f"{size}", expected)
    if training.refill:
        reason = "EasyR1 gets all prompts of a step at its beginning"
        yield Fault(f"{name}.training.refill", f"{training.refill}", "0", reason)
    if vocabulary_retention < 1:
        reason = "EasyR1's vLLM gets no mask over the vocabulary"
        yield Fault(f"{name}.vocabulary_retention", f"{vocabulary_retention:g}", "1", reason)
    if training.sampling.temperature == 0:
        reason = "at 0 all rollouts of a prompt are equal"
        yield Fault(f"{name}.training.sampling.temperature", "0", "more than 0", reason)
    if own_reference and objective.kl_coefficient > 0:
        reason = "after the first round, EasyR1 measures the KL to the model that the round starts from"
        yield Fault(f"{name}.reward.kl_coefficient", f"{objective.kl_coefficient:g}", "0", reason)
    if continued:
        reason = "EasyR1 begins every round with a new AdamW"
        yield Fault("solver.training.optimiser", "'continued'", "'fresh'", reason)


def deviations(training: Training, objective: Objective) -> list[str]:
    """How a training on EasyR1 differs from the same training on the embedded trainer, one sentence each."""
    sentences = [
        "vLLM samples the rollouts, and what it draws depends on what else a GPU computes: two runs of one job differ",
    ]
    if objective.loss_average == "sequence":
        sentences.append("a micro batch's mean over sequences is weighted by its tokens, not by its sequences")
    if training.prompts_per_update not in (None, training.prompts_per_step):
        sentences.append("the weight of dropped prompts is evened out over a step, not over each of its mini-batches")
    if objective.trained_share < 1:
        sentences.append("rollouts that only vote have advantage 0 but count in the KL term, where they should not")
    if objective.kl_coefficient > 0:
        sentences.append("prompts and rollouts that are dropped from the loss still count in the KL term")
    sentences.append("the entropy is estimated by the mean negative log-probability of the sampled tokens")
    return sentences
