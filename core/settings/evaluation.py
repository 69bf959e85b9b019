"""Benchmarks, and how a model is evaluated on them: deploy/benchmarks, deploy/suites, and a preset's `[evaluation]`."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from core.grading.kinds import AnswerKind
from core.settings.templates import QUESTION, SOLVER_SYSTEM, Example, SolverTemplate
from core.settings.training import Sampling
from core.validation.bounds import Iterations, Positive, SettingsTable

MOST_SAMPLES = 1_024  # answers to a question
Samples = Annotated[int, Field(ge=0, le=MOST_SAMPLES)]


class Columns(SettingsTable):
    """The names of a file's columns. Those with a default that the file does not have are left out, except the first
    two."""

    question: str = "problem"
    answer: str = "answer"
    id: str = "id"  # without it, a question is known by its number in the file
    level: str = "level"
    subject: str = "subject"
    # For multiple choice: the column with the list of options, where the answer is a letter; or one column for each
    # option, the right one first, which are then put into an order that derives from the question's id.
    options: str | tuple[str, ...] | None = None


class Hub(SettingsTable):
    """A data set on the Hugging Face hub, which is fetched if there is no local file."""

    dataset: str = Field(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$")
    config: str = Field("default", pattern=r"^[A-Za-z0-9._-]+$")
    split: str = Field("test", pattern=r"^[A-Za-z0-9._-]+$")


class Benchmark(SettingsTable):
    """A benchmark: where its questions are, how they are asked and how answers are compared.

    `prompt` is the user's message, in which {question} stands for the question with its options. `system` may be empty.
    A benchmark that sets none of `system`, `prompt` and `few_shot` is asked with the template of the evaluated Solver.
    """

    title: str
    source: str  # who made it, and where the file can be had
    questions: Positive | None = None  # how many there are, for `coevo check` where the file is not on this machine
    hub: Hub | None = None
    columns: Columns = Columns()
    answer_after: str | None = None  # the answer is what follows this text in its column
    answers: AnswerKind = "math"
    system: str = SOLVER_SYSTEM
    prompt: str = QUESTION
    before_options: str = "\n\nOptions:\n"  # the text between a question and its options
    option: str = "{letter}. {text}"  # the line of an option
    few_shot: tuple[Example, ...] = ()

    def asked_with(self, template: SolverTemplate) -> Benchmark:
        """The benchmark as a run asks it whose Solver has this template.

        A benchmark that sets `system`, `prompt` or `few_shot` is asked in its own way.
        """
        if self.model_fields_set & {"system", "prompt", "few_shot"}:
            return self
        return self.model_copy(
            update={"system": template.system, "prompt": template.user, "few_shot": template.examples}
        )

    @property
    def template(self) -> SolverTemplate:
        """How its questions are asked."""
        return SolverTemplate(system=self.system, user=self.prompt, examples=self.few_shot)

    @model_validator(mode="after")
    def _asks_its_questions(self) -> Benchmark:
        if QUESTION not in self.prompt:
            raise ValueError(f"prompt: expected a text with {QUESTION}, got {self.prompt!r}")
        if "{letter}" not in self.option or "{text}" not in self.option:
            raise ValueError(f"option: expected a text with {{letter}} and {{text}}, got {self.option!r}")
        return self


class Protocol(SettingsTable):
    """How often each question is asked: `samples` times at the sampling temperature, and once greedily.

    With samples = 0 the greedy answer is the only one, and pass@1 is the share of right greedy answers.
    """

    samples: Samples = 8
    sampling: Sampling = Sampling(top_p=1.0)


class Suite(SettingsTable):
    """Benchmarks that are evaluated together, each with its number of samples."""

    title: str
    source: str  # the paper, and the sentence or table that has the protocol
    sampling: Sampling
    benchmarks: dict[str, Samples] = Field(min_length=1)

    def protocols(self) -> dict[str, Protocol]:
        """Benchmark -> how it is evaluated."""
        return {name: Protocol(samples=samples, sampling=self.sampling) for name, samples in self.benchmarks.items()}


class Evaluation(Protocol):
    """Accuracy after each iteration. The series and the guard watch pass@1 on `benchmark`.

    A benchmark is "micro", "micro-long", a name in deploy/benchmarks, or a file
    (`orchestrator.question_sets.benchmarks`).
    """

    benchmark: str = "micro"
    also: tuple[str, ...] = ()  # further benchmarks, which are asked in the same way
    suite: str | None = None  # the name of a suite in deploy/suites, which is evaluated in its own way


OWN_PROMPTS = "prompts"  # the benchmark of early stopping that is a share of the run's own prompts


class EarlyStopping(SettingsTable):
    """Stop when pass@1 on a small labelled set has not improved for `patience` iterations, and go back to the best
    Solver (SRT 5.1).

    `benchmark` is like `Evaluation.benchmark`; or "prompts", a share of the run's own prompts, drawn at random, which
    the Solver is then not trained on.
    """

    share: ClassVar[float] = 0.01  # of the prompts, if `benchmark` is "prompts": SRT 5.1 holds out 1% of DAPO

    benchmark: str
    patience: Iterations = 2

    def held_out_of(self, prompts: int) -> int:
        """How many of so many prompts are held out."""
        return max(1, round(self.share * prompts))
