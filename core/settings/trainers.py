"""Which trainer does a run's training, and with what: the variants of a preset's `[trainer]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from core.settings.bounds import Part, Positive, Share, Workers


class LocalSettings(Part):
    """The embedded trainer: plain torch on Ray. `workers` of `[….training]` says how many take part.

    What a number does not say is a matter of speed and memory only.
    """

    type: Literal["local"] = "local"
    device: Literal["auto", "cpu"] = "auto"  # of each worker; auto: a GPU where Ray has some, else a CPU
    sampling_rows: Positive = 512  # rollouts that a worker samples at once; the others come after them
    checkpoint_activations: bool = False  # keep what enters a layer; compute the rest again for the gradients


class EasyR1Settings(Part):
    """EasyR1 in its own environment, which it does not share with us: see docs/easyr1.md.

    `source` is a checkout of the pinned commit, `python` the interpreter that has what it needs. What a number does not
    say is a matter of speed and memory only.
    """

    type: Literal["easyr1"] = "easyr1"
    python: str = "python3"
    source: str = "EasyR1"
    nodes: Workers = 1
    gpus_per_node: Workers = 8
    tensor_parallel: Workers = 1  # of vLLM, for rollouts
    gpu_memory_share: Share = 0.6  # of vLLM
    update_micro_batch: Positive = 4  # sequences a GPU and forward pass
    experience_micro_batch: Positive = 16
    offload: bool = False  # parameters and optimiser states to the CPU's memory while the other is at work


TrainerSettings = Annotated[LocalSettings | EasyR1Settings, Field(discriminator="type")]
