"""The commands about EasyR1: `coevo easyr1 render`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from core.settings.config import CoEvolution, RunConfig, SelfTraining
from core.settings.parsing import load_config
from core.settings.prompts import Prompts
from core.settings.trainers import EasyR1Settings
from core.types import Checkpoint, Role
from orchestrator.cli.terminal import clear_errors, setting
from orchestrator.installation.home import MICRO_MODEL
from orchestrator.question_sets.prompts import GivenPrompt, read_prompts, trained_on
from orchestrator.runs import RunError, preset_path
from trainers.base import ChallengerJob, SolverJob, SolverService, TrainJob, TrainQuestion
from trainers.easyr1.fit import deviations

easyr1 = typer.Typer(help="EasyR1 as the trainer: docs/easyr1.md.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class _Questions:
    """What the Solver is rendered with, and why others stand in for its own; None where they are its own."""

    prompts: tuple[TrainQuestion, ...]
    stands_in: str | None = None


@easyr1.callback()
def _group() -> None:
    """EasyR1 as the trainer: docs/easyr1.md."""


@easyr1.command()
def render(
    preset: Annotated[str, typer.Option(help="A preset of deploy/runs, or a TOML file.", show_default=False)],
    role: Annotated[str, typer.Option(help="solver or challenger.")] = "solver",
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("easyr1"),
    solver_url: Annotated[str, typer.Option(help="The Solver's service, for the Challenger's reward.")] = "",
    override: Annotated[
        list[str] | None, typer.Option("--set", help="A setting by its dotted name: trainer.gpus_per_node=4.")
    ] = None,
) -> None:
    """Write what EasyR1 would be started with for the first training of a preset: nothing is run, no GPU is needed.

    What is not known before a run, or not on this machine, is stood in for, and the output says by what: a loop's
    questions and labels by those of the tiny world, the base model's tokenizer by the tiny model's.
    """
    from trainers.easyr1.config import render as write

    with clear_errors():
        config = load_config(preset_path(preset), dict(setting(text) for text in override or []))
        if role not in ("solver", "challenger"):
            raise RunError(f"role: expected solver or challenger, got {role!r}")
        settings = config.trainer if isinstance(config.trainer, EasyR1Settings) else EasyR1Settings()
        folder = MICRO_MODEL if config.base_model == "micro" else Path(config.base_model)
        tokenizer, lent = _tokenizer(folder)
        job, stands_in = _job(config, "solver" if role == "solver" else "challenger", folder, out, solver_url)
        path = write(job, settings, tokenizer, out)
        print(f"{path}: {job.training.steps} steps of {job.training.prompts_per_step} x {job.rollouts} rollouts")
        _say("What stands in for something else:", [sentence for sentence in (stands_in, lent) if sentence])
        _say("It differs from the embedded trainer's in this:", deviations(job.training, job.reward))


def _say(title: str, sentences: list[str]) -> None:
    if sentences:
        print("\n".join([title, *(f"- {sentence}" for sentence in sentences)]))


def _tokenizer(folder: Path) -> tuple[Any, str | None]:
    """The base model's tokenizer, or the tiny model's and a sentence about it."""
    from transformers import AutoTokenizer  # seconds, which no other command should take

    here = (folder / "config.json").is_file()
    tokenizer = AutoTokenizer.from_pretrained(folder if here else MICRO_MODEL, local_files_only=True)
    if tokenizer.chat_template is None:
        raise RunError(f"base_model: {folder}: its tokenizer has no chat template; put a chat_template.jinja there")
    if here:
        return tokenizer, None
    return tokenizer, (
        f"the tiny model's tokenizer and chat template, for those of {folder}, which has no config.json here: the "
        "prompts' texts, and data.max_prompt_length in config.yaml, are that tokenizer's and not the model's"
    )


def _job(config: RunConfig, role: Role, folder: Path, out: Path, solver_url: str) -> tuple[TrainJob, str | None]:
    """The first training of a role, and what stands in for its questions."""
    start = Checkpoint("preset/base/0", "preset", "base", 0, 0, str(folder), "", None)
    key = f"1/train_{role}"
    if role == "challenger":
        if not isinstance(config, CoEvolution) or not config.challenger.trained:
            raise RunError("role: this preset trains no Challenger; expected solver")
        service = SolverService(solver_url or "http://127.0.0.1:8000/solver/v1", start.id, config.dataset.sampling)
        challenger = ChallengerJob(
            key=key,
            run_seed=config.seed,
            start=start,
            training=config.challenger.training,
            reward=config.challenger.reward,
            solver=service,
            work_dir=out,
        )
        return challenger, None
    asked = _questions(config)
    solver = SolverJob(
        key=key,
        run_seed=config.seed,
        start=start,
        training=config.solver.training,
        reward=config.solver.reward,
        questions=asked.prompts,
        signals=config.solver.signals,
        work_dir=out,
    )
    return solver, asked.stands_in


def _questions(config: RunConfig) -> _Questions:
    """Those of the preset's prompt set with what labels they bring; else, and saying why, the tiny world's."""
    why = next(_unknown(config), None)
    if isinstance(config, SelfTraining) and why is None:
        given = config.prompts.labels == "given"
        return _Questions(tuple(_question(at, prompt, given) for at, prompt in trained_on(config, config.prompts)))
    labelled = "label" in config.solver.reward.needs
    count = config.solver.training.steps * config.solver.training.prompts_per_step
    drawn = read_prompts(config, Prompts(file="micro", answer="answer", limit=count))
    what = "questions and true answers as labels" if labelled else "questions"
    return _Questions(
        tuple(_question(at, prompt, labelled) for at, prompt in enumerate(drawn)),
        f"{count} {what} of the tiny world, since {why}",
    )


def _unknown(config: RunConfig) -> Iterator[str]:
    """Why the Solver's own questions, or their labels, cannot be had before a run."""
    if isinstance(config, CoEvolution):
        yield "what this preset's Challenger will ask is not known yet"
        return
    prompts = config.prompts
    files = [prompts.file, config.evaluation.benchmark]
    files += [config.early_stopping.benchmark] if config.early_stopping is not None else []
    for file in files:
        if file != "benchmark" and not file.startswith("micro") and not Path(file).is_file():
            yield f"{file} is not on this machine"
    if "label" in config.solver.reward.needs and prompts.labels != "given":
        yield "the base model's votes are not known yet"


def _question(at: int, prompt: GivenPrompt, labelled: bool) -> TrainQuestion:
    return TrainQuestion(f"{at:06d}", prompt.text, prompt.answer if labelled else None, prompt.answer)
