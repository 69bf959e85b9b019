"""Which trainer a run uses, and its settings: the variants of a preset's `[trainer]`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from core.validation.bounds import Positive, Scale, SettingsTable, Share, Workers

# Seconds without progress, after which a training counts as hanging; longer than any step should take, because one that
# is killed by mistake does its last steps again.
_PROGRESS_TIMEOUT = 7200.0


class Lora(SettingsTable):
    """Train small matrices beside the model's own (LoRA, arXiv 2106.09685), by PEFT, and leave the model's as they are.

    A linear layer `W` becomes `W + alpha/rank B A`, where `A` is (rank, inputs) and `B` is (outputs, rank) and begins
    as 0. The published checkpoint holds the sums, so that it is a model like any other, and `A` and `B` in a folder.
    """

    rank: Positive = 32
    alpha: Positive = 32
    # Names of linear layers; "all-linear": all but the output head.
    targets: Annotated[tuple[str, ...], Field(min_length=1)] | Literal["all-linear"] = "all-linear"


class LocalSettings(SettingsTable):
    """The embedded trainer: plain torch on Ray. `workers` of `[….training]` is the number of its workers.

    Apart from `precision`, `lora`, `importance_cap` and `ahead`, the settings only affect speed and memory. With vLLM
    as the `sampler` the rollouts are others, too.

    Workers whose models have not computed anything for `progress_timeout` are killed. They start again from the newest
    checkpoint, once. A thread in the process of the run (`own_processes`) cannot be killed: the log says that it hangs.
    """

    progress_timeout: ClassVar[float] = _PROGRESS_TIMEOUT

    type: Literal["local"] = "local"
    device: Literal["auto", "cpu"] = "auto"  # of each worker; auto: a GPU if Ray has any, else a CPU
    # Who samples the rollouts: the trainer itself, or the run's own application of the role, to which the trainer gives
    # its weights after each step.
    sampler: Literal["embedded", "application"] = "embedded"
    # 1: an application samples the rollouts of the next step while the trainer updates. They are then by the policy
    # before the last step.
    ahead: int = Field(0, ge=0, le=1)
    # The most that a token weighs which vLLM, or an earlier policy, has sampled. Its weight is its importance: its
    # probability by the policy that is trained, over that by its sampler. None: it weighs 1.
    importance_cap: Scale | None = 2.0
    sampling_rows: Positive = 512  # rollouts that a worker samples at once; the others are sampled afterwards
    own_processes: bool = True  # False: one worker on a CPU in the process of the run, which needs no start
    checkpoint_activations: bool = False  # keep only the input of each layer; compute the rest again for the gradients
    # Of the layers' forward and backward passes. Weights, moments, logits and the loss are float32 in any case.
    precision: Literal["float32", "bfloat16"] = "float32"
    # The most tokens, padding included, of a forward pass with gradients; `micro_batch` of `[….training]` is its limit
    # otherwise. A longer row is a micro batch of its own.
    tokens_per_micro_batch: Positive | None = None
    lora: Lora | None = None

    @model_validator(mode="after")
    def _ahead_of_an_application(self) -> LocalSettings:
        if self.ahead and self.sampler == "embedded":
            raise ValueError("ahead: expected 0, because the embedded sampler is the trainer itself; got 1")
        return self


class EasyR1Settings(SettingsTable):
    """EasyR1, which runs in an environment of its own (docs/gpu.md).

    `source` is a checkout of the pinned commit, and `python` is an interpreter that has EasyR1's dependencies. The
    other settings only affect speed and memory.

    EasyR1 is killed if it has not reported a step for `progress_timeout`. It starts again from its newest checkpoint,
    once. The time of the first step includes its start, in which it loads the model and vLLM compiles it.
    """

    progress_timeout: ClassVar[float] = _PROGRESS_TIMEOUT

    type: Literal["easyr1"] = "easyr1"
    python: str = "python3"
    source: str = "EasyR1"
    nodes: Workers = 1
    gpus_per_node: Workers = 8
    tensor_parallel: Workers = 1  # of vLLM, which samples the rollouts
    gpu_memory_share: Share = 0.6  # of each GPU, for vLLM
    update_micro_batch: Positive = 4  # sequences per GPU and forward pass
    offload: bool = False  # keep parameters and optimiser states in the machine's memory while vLLM samples


TrainerSettings = Annotated[LocalSettings | EasyR1Settings, Field(discriminator="type")]
