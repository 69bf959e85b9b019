"""The rollouts that a training hands back, so that people can read what was rewarded: those of some prompts of a step.

Either trainer writes one file of JSON lines for each step, `work_dir/rollouts/STEP.jsonl`, before it saves the step's
checkpoint. A training that goes on from a checkpoint replaces the files of the steps that it repeats. EasyR1's reward
function calls this module in EasyR1's own environment, so it imports nothing but `core` and `trainers.base`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from core.files import make_folder, replacing
from core.seeds import seed_for
from core.types import FinishReason, Group, Scored, TrainingRollout
from trainers.base import TrainQuestion

_FOLDER = "rollouts"


@dataclass(frozen=True, slots=True)
class Content:
    """What a rollout says, and on which question; the fields are those of `TrainingRollout`."""

    question_id: str | None
    question: str | None
    answer: str | None = None
    agrees: bool | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """A rollout as the trainer sampled it, and the advantage that it got; None if it was not trained on."""

    text: str
    tokens: int
    finish_reason: FinishReason
    mean_entropy: float | None
    advantage: float | None


def folder_in(work_dir: Path) -> Path:
    return work_dir / _FOLDER


def sampled_prompts(run_seed: int, job: str, contents: Sequence[Sequence[Content]], count: int) -> list[int]:
    """The positions of the `count` prompts of a step whose rollouts are stored, in order.

    Every question has a random rank, which is made from its text and the key of the job, and those of the lowest ranks
    are taken. So what is stored does not depend on the rewards, and a question that is stored at one step is likely to
    be stored at the next one that has it. The Challenger's prompts are all the same; their ranks are by position.
    """
    prompts = [
        str(position) if group[0].question_id is None else group[0].question or ""
        for position, group in enumerate(contents)
    ]
    ranks = [(seed_for(run_seed, job, "stored rollouts", prompt), position) for position, prompt in enumerate(prompts)]
    return sorted(position for _, position in sorted(ranks)[:count])


def solver_contents(question: TrainQuestion, group: Group, scored: Scored) -> list[Content]:
    """The contents of the rollouts (G,) of a Solver's prompt. An answer agrees if it is in the class of the label; None
    if there is no label, or if the grader cannot decide."""
    agrees: Sequence[bool | None] = [None] * len(group.answers)
    classes = [answer for answer, _ in group.vote.classes]
    if scored.label is not None and group.agrees is not None and scored.label == group.label:
        agrees = group.agrees  # as the grader compared each answer with the label that came with the question
    elif scored.label in classes:
        agrees = [of_answer == classes.index(scored.label) for of_answer in group.classes]
    return [
        Content(question.question_id, question.text, answer, agreed)
        for answer, agreed in zip(group.answers, agrees, strict=True)
    ]


def write_step(
    folder: Path,
    step: int,
    prompts: Iterable[int],
    groups: Sequence[Scored],
    contents: Sequence[Sequence[Content]],
    samples: Sequence[Sequence[Sample]],
) -> None:
    """Write the rollouts of the step's prompts at the positions `prompts`, and replace what an earlier attempt wrote.

    The other arguments have one entry per prompt of the step.
    """
    make_folder(folder)
    lines = []
    for prompt in prompts:
        scored = groups[prompt]
        parts: Sequence[dict[str, float]] = scored.rollout_parts or [{}] * len(samples[prompt])
        for rollout, (content, sample) in enumerate(zip(contents[prompt], samples[prompt], strict=True)):
            row = TrainingRollout(
                step=step,
                prompt=prompt,
                rollout=rollout,
                question_id=content.question_id,
                question=content.question,
                answer=content.answer,
                label=scored.label,
                agrees=content.agrees,
                reward=float(scored.rewards[rollout]),
                parts=scored.parts | parts[rollout],
                advantage=sample.advantage,
                tokens=sample.tokens,
                finish_reason=sample.finish_reason,
                mean_entropy=sample.mean_entropy,
            )
            lines.append(json.dumps({"text": sample.text, **asdict(row)}) + "\n")
    with replacing(folder / f"{step}.jsonl") as temporary:
        temporary.write_text("".join(lines), encoding="ascii")


def read_step(folder: Path, step: int) -> list[tuple[TrainingRollout, str]]:
    """The rollouts of a step with their texts; empty if the job stores none."""
    file = folder / f"{step}.jsonl"
    if not file.exists():
        return []
    rows = [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()]
    return [(TrainingRollout(**{name: row[name] for name in row if name != "text"}), row["text"]) for row in rows]
