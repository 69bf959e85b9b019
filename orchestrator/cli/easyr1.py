"""`coevo methods easyr1`: the files that EasyR1 would be started with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from core.settings.config import CoEvolution, RunConfig
from core.settings.parsing import load_config
from core.settings.prompts import Prompts
from core.settings.trainers import EasyR1Settings
from core.types import TINY_BASES, Checkpoint
from orchestrator.check.needs import base_model
from orchestrator.check.presets import preset_path
from orchestrator.check.start import RunError
from orchestrator.cli.terminal import SET, Overrides, overrides_of
from orchestrator.installation.home import MICRO_MODEL
from orchestrator.question_sets.benchmarks import evaluated_in, is_here
from orchestrator.question_sets.held_out import trained_on
from orchestrator.question_sets.prompts import GivenPrompt, read_prompts
from orchestrator.stages.training.jobs import challenger_job, solver_job
from trainers.base import TrainJob, TrainQuestion
from trainers.easyr1.fit import deviations


def easyr1(
    preset: Annotated[
        str, typer.Option(help="Name of a preset in deploy/runs, or path of a TOML file.", show_default=False)
    ],
    role: Annotated[str, typer.Option(help="Role that is trained: solver or challenger.")] = "solver",
    out: Annotated[Path, typer.Option(help="Folder to write the files to.")] = Path("easyr1"),
    solver_url: Annotated[
        str,
        typer.Option(
            help="URL of the Solver's service, which the Challenger's reward asks; by default port 8000 here."
        ),
    ] = "",
    override: Overrides = None,
) -> None:
    """Write the files that EasyR1 would be started with for the first training of a preset (docs/gpu.md).

    No GPU is needed, and nothing is trained. What is unknown before a run or missing on this machine is replaced, which
    the output says: questions and labels by those of the tiny world, the tokenizer by that of the tiny model.
    """
    from trainers.easyr1.config import render

    config = load_config(preset_path(preset), overrides_of(override), SET)
    if role not in ("solver", "challenger"):
        raise RunError(f"role: expected solver or challenger, got {role!r}")
    settings = config.trainer if isinstance(config.trainer, EasyR1Settings) else EasyR1Settings()
    folder = base_model(config)
    tokenizer, replaced_tokenizer = _tokenizer(folder)
    start = Checkpoint("preset/base/0", "preset", "base", 0, 0, str(folder), "", None)
    if role == "challenger":
        if not isinstance(config, CoEvolution) or not config.challenger.trained:
            raise RunError("role: this preset trains no Challenger; expected solver")
        url = solver_url or "http://127.0.0.1:8000/solver/v1"
        job: TrainJob = challenger_job(config, "1/train_challenger", start, start, url, out)
        replaced_questions = None
    else:
        questions, replaced_questions = _questions(config)
        job = solver_job(config, "1/train_solver", start, questions, out)
    path = render(job, settings, tokenizer, out)
    print(f"{path}: {job.training.steps} steps of {job.training.prompts_per_step} x {job.rollouts} rollouts")
    replaced = [sentence for sentence in (replaced_questions, replaced_tokenizer) if sentence]
    differences = deviations(job.training, job.reward)
    for title, sentences in (("Replaced:", replaced), ("Differences from the embedded trainer:", differences)):
        if sentences:
            print("\n".join([title, *(f"- {sentence}" for sentence in sentences)]))


def _tokenizer(folder: Path) -> tuple[Any, str | None]:
    """The base model's tokenizer and None; or the tiny model's and a sentence about the replacement."""
    # imported here, because it takes seconds to import
    from services.inference.engines.model_files import tokenizer_of

    is_here = (folder / "config.json").is_file()
    tokenizer = tokenizer_of(folder if is_here else MICRO_MODEL)
    if tokenizer.chat_template is None:
        raise RunError(f"base_model: {folder}: its tokenizer has no chat template; put a chat_template.jinja there")
    if is_here:
        return tokenizer, None
    return tokenizer, (
        f"the tiny model's tokenizer and chat template replace those of {folder}, which has no config.json here; so "
        "the prompts' texts and data.max_prompt_length in config.yaml are not the model's own"
    )


def _questions(config: RunConfig) -> tuple[tuple[TrainQuestion, ...], str | None]:
    """The prompts of the preset's prompt set with the labels that they bring, and None; else the tiny world's, and why
    they replace the Solver's own."""
    labelled = "label" in config.solver.reward.needs
    if isinstance(config, CoEvolution):
        reason = "what this preset's Challenger will ask is not known yet"
    elif config.prompts.file not in ("benchmark", *TINY_BASES) and not Path(config.prompts.file).exists():
        reason = f"{config.prompts.file} is not on this machine"
    elif missing := [benchmark for benchmark in evaluated_in(config) if not is_here(benchmark)]:
        reason = f"{missing[0]} is not on this machine"
    elif labelled and config.prompts.labels != "given":
        reason = "the base model's votes are not known yet"
    else:
        has_labels = config.prompts.labels == "given"
        return tuple(_question(*prompt, has_labels) for prompt in trained_on(config, config.prompts)), None
    count = config.solver.training.steps * config.solver.training.prompts_per_step
    what = "questions and true answers as labels" if labelled else "questions"
    tiny_prompts = read_prompts(config, Prompts(file="micro", answer="answer", limit=count))
    questions = tuple(_question(index, prompt, labelled) for index, prompt in enumerate(tiny_prompts))
    return questions, f"{count} {what} of the tiny world replace the preset's own, since {reason}"


def _question(index: int, prompt: GivenPrompt, labelled: bool) -> TrainQuestion:
    return TrainQuestion(f"{index:06d}", prompt.text, prompt.answer if labelled else None, prompt.answer)
