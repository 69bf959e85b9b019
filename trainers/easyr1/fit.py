"""Which trainings EasyR1 can do as asked, and where it differs from the embedded trainer though it can.

Its own estimators are not used. The reward shim makes the advantages (`core.methods`), as the embedded trainer does,
and hands them on as rewards: EasyR1's RLOO returns `N/(N-1) (s - mean s)`, so that `(N-1)/N A` of a zero-sum A comes
out as A. What is left to fit is the rest of the objective.
"""

from __future__ import annotations

from collections.abc import Iterator

from core.methods import Method, Objective, Signal
from core.settings.trainers import EasyR1Settings
from core.settings.training import Training
from trainers.base import TrainError

SIGNALS: frozenset[Signal] = frozenset({"label", "embeddings", "clusters"})  # no token entropies reach its reward


def refuse_unfit(name: str, training: Training, objective: Objective, *, own_reference: bool = False) -> None:
    """Raise `TrainError` with every reason why EasyR1 cannot train `name` ("solver" or "challenger") as asked.

    `own_reference`: the KL is to another model than the one that the training starts from.
    """
    reasons = list(_unfit(training, objective))
    if own_reference and objective.kl_coefficient > 0:
        reasons.append("kl_coefficient: EasyR1 takes the KL to what it starts from; expected 0 after a first round")
    if reasons:
        kind = f"{name}.reward {objective.type}" if isinstance(objective, Method) else f"{name}.reward"
        listed = "".join(f"\n  {reason}" for reason in reasons)
        raise TrainError(f"{kind}: EasyR1 cannot train this as asked; trainer.type = 'local' can:{listed}")


def refuse_layout(training: Training, rollouts: int, settings: EasyR1Settings) -> None:
    """Raise `TrainError` when batches do not divide among the GPUs as EasyR1 asks (fsdp_workers.py, ray_trainer.py,
    protocol.py): it would find out only once they are reserved."""
    gpus, prompts = settings.nodes * settings.gpus_per_node, training.prompts_per_update or training.prompts_per_step
    whole = (
        (f"{prompts} prompts x {rollouts} rollouts an update", prompts * rollouts, "GPUs", gpus),
        ("a step's prompts, and repeats them afterwards", training.prompts_per_step, "GPUs", gpus),
        (
            "sequences of an update on one GPU",
            prompts * rollouts // gpus,
            "trainer.update_micro_batch",
            settings.update_micro_batch,
        ),
        (
            "a step's sequences",
            training.prompts_per_step * rollouts,
            "trainer.experience_micro_batch",
            settings.experience_micro_batch,
        ),
        ("GPUs", gpus, "trainer.tensor_parallel", settings.tensor_parallel),
    )
    for what, count, name, parts in whole:
        if count == 0 or count % parts:
            raise TrainError(f"{name}: EasyR1 deals out {what}: expected a divisor of {count}, got {parts}")


def _unfit(training: Training, objective: Objective) -> Iterator[str]:
    if isinstance(objective, Method):
        for signal in sorted(objective.needs - SIGNALS):
            yield f"{signal}: EasyR1's reward function sees texts only; it gives {', '.join(sorted(SIGNALS))}"
    if objective.entropy_coefficient > 0:
        yield f"entropy_coefficient: EasyR1 has no entropy bonus; expected 0, got {objective.entropy_coefficient:g}"
    if objective.kl_in == "reward" and objective.kl_coefficient > 0 and objective.advantage != "rloo":
        yield f"kl_in: in the reward only with advantage 'rloo', which is linear; got {objective.advantage!r}"
    if objective.loss_average == "max_length" and objective.kl_coefficient > 0:
        # It is a mean over tokens whose rewards the shim scales by the answers' lengths, and the KL it cannot scale.
        yield "loss_average: with a kl_coefficient above 0 expected 'token' or 'sequence', got 'max_length'"
    if not objective.zero_sum:
        yield "sets: advantages of sampled sets do not sum to zero; expected all sets"
    size = training.prompts_per_update
    if size is not None and training.prompts_per_step % size:
        yield f"prompts_per_update: expected a divisor of prompts_per_step = {training.prompts_per_step}, got {size}"
    if size not in (None, training.prompts_per_step) and objective.loss_average == "max_length":
        yield f"prompts_per_update: with loss_average 'max_length' expected all of a step's prompts, got {size}"
    if training.sampling.temperature == 0:
        yield "sampling.temperature: expected more than 0, where rollouts differ, got 0"


def deviations(training: Training, objective: Objective) -> list[str]:
    """Where a training that fits is not what the embedded trainer does, in sentences."""
    offsets = [
        "rollouts are vLLM's, whose draws depend on what a GPU computes beside them: two runs of one job differ",
        "AdamW's second beta is 0.999, as R-Zero was trained with; the embedded trainer's is 0.99",
    ]
    if objective.loss_average == "sequence":
        offsets.append("a micro batch's mean over sequences is weighed by its tokens, and not by its sequences")
    if training.prompts_per_update not in (None, training.prompts_per_step):
        offsets.append("the weight of dropped prompts is evened out over a step, not over each of its mini-batches")
    if objective.trained_share < 1:
        offsets.append("rollouts that only vote have advantage 0 and a part in the KL term, instead of none")
    if objective.kl_coefficient > 0:
        offsets.append("prompts that are dropped from the loss keep their part in the KL term")
    offsets.append("the entropy is estimated by the mean negative log-probability of the sampled tokens")
    return offsets
