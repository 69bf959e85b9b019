"""What the calculator assumes, all of it a number that can be given another value: nothing here was measured."""

from __future__ import annotations

from dataclasses import dataclass, fields

GIB = 1024**3
# Of the bfloat16 peak: 67 TFLOP/s, by the same data sheet. The embedded trainer computes in float32.
FLOAT32_SHARE = 67 / 989


@dataclass(frozen=True, slots=True)
class Assumptions:
    """`coevo plan` has an option for each."""

    gpu_memory: float = 80.0  # GiB
    gpus_per_node: int = 8
    trainer_nodes: int = 1  # that the trainer may span
    peak_tflops: float = 989.0  # bfloat16, dense: the data sheet of an H100 SXM
    cpu_peak_tflops: float = 0.1  # of one core, float32
    mfu_train: float = 0.3
    mfu_sample: float = 0.1
    token_seconds: float = 0.01  # from one token of an answer to the next, on a GPU
    typical_share: float = 0.25  # of its max_tokens that an answer has
    prompt_tokens: int = 256
    longest_prompt: int = 1024  # tokens; a question has at most 2,000 characters
    benchmark_items: int = 500  # where the number is not known on this machine
    given_prompts: int = 8000  # where the file is not on this machine

    def sentences(self, device: str, float32: bool = False) -> list[str]:
        """Each in words, with its value. `float32`: the trainer computes in it on a GPU."""
        peak = f"{self.peak_tflops:g} TFLOP/s a GPU" if device == "gpu" else f"{self.cpu_peak_tflops:g} TFLOP/s a core"
        return [
            f"{peak} at its peak; {self.mfu_train:.0%} of that in training, {self.mfu_sample:.0%} in sampling",
            *([f"{FLOAT32_SHARE:.1%} of that peak in float32, in which the embedded trainer computes"] * float32),
            f"{self.token_seconds * 1000:g} ms from one token of an answer to the next, on a GPU; the longest answer "
            "of a round has all of its max_tokens",
            f"an answer has {self.typical_share:.0%} of its max_tokens (typical) to all of them (maximum)",
            f"a prompt has {self.prompt_tokens} tokens, at most {self.longest_prompt:,} (that is for memory)",
            "attention over the context is not counted in FLOPs",
            "nor is anything else: starting engines, grading, saving checkpoints",
        ]


NAMES = tuple(field.name for field in fields(Assumptions))
