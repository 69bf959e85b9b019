"""How the two roles are asked: a preset's `[challenger.template]` and `[solver.template]`.

The defaults are R-Zero's prompt templates (appendix E.2), verbatim.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from core.questions.parsing import parse_question
from core.types import Message
from core.validation.bounds import SettingsTable

SOLVER_SYSTEM = r"Please reason step by step, and put your final answer within \boxed{}."

CHALLENGER_SYSTEM = r"""You are an expert competition-math problem setter. FIRST, in your private scratch-pad, think step-by-step to design a brand-new, non-trivial problem. The problem could come from any field of mathematics, including but not limited to algebra, geometry, number theory, combinatorics, prealgebra, probability, statistics, and calculus. Aim for a difficulty such that fewer than 30% of advanced high-school students could solve it. Avoid re-using textbook clichés or famous contest problems.

THEN, without revealing any of your private thoughts, output **exactly** the following two blocks:

<question>
{The full problem statement on one or more lines}
</question>

\boxed{final_answer}

Do NOT output anything else—no explanations, no extra markup."""  # noqa: E501 (verbatim)

CHALLENGER_USER = (
    "Generate one new, challenging reasoning question now. Remember to format the output exactly as instructed."
)

QUESTION = "{question}"  # stands for the question in a user's message
Text = Annotated[str, Field(max_length=20_000)]
Required = Annotated[Text, Field(min_length=1)]
_Examples = Annotated[tuple[Required, ...], Field(max_length=32)]


class Example(SettingsTable):
    """A worked example that is shown before each question."""

    question: Required
    answer: Required


class SolverTemplate(SettingsTable):
    """How the Solver is asked a question, in votes, in trainings and in evaluations.

    Worked examples are earlier turns of the chat. With an empty `system` there is no system message, which some chat
    templates refuse.
    """

    system: Text = SOLVER_SYSTEM
    user: Text = QUESTION
    examples: Annotated[tuple[Example, ...], Field(max_length=32)] = ()

    @model_validator(mode="after")
    def _asks_the_question(self) -> SolverTemplate:
        if QUESTION not in self.user:
            raise ValueError(f"user: expected a text with {QUESTION}, got {self.user[:80]!r}")
        return self

    def messages(self, question: str) -> list[Message]:
        """The chat that asks one question."""
        turns = [(self._asked(example.question), example.answer) for example in self.examples]
        return _chat(self.system, turns, self._asked(question))

    def _asked(self, question: str) -> str:
        return self.user.replace(QUESTION, question)


class ChallengerTemplate(SettingsTable):
    """How the Challenger is asked for one question: the same for every rollout.

    `examples` are replies as they should be. They are shown as answers to earlier requests, for a model that does not
    keep to the format otherwise. A candidate that repeats one of them is a duplicate.
    """

    system: Text = CHALLENGER_SYSTEM
    user: Required = CHALLENGER_USER
    examples: _Examples = ()

    def messages(self) -> list[Message]:
        """The chat that asks for one question."""
        return _chat(self.system, [(self.user, example) for example in self.examples], self.user)

    @property
    def example_questions(self) -> list[str]:
        """The questions of the examples."""
        return [question for example in self.examples if (question := parse_question(example)) is not None]


def _chat(system: str, turns: list[tuple[str, str]], user: str) -> list[Message]:
    """A chat that ends with the user's message; each of the `turns` before it is a request and its reply."""
    messages = [{"role": "system", "content": system}] if system else []
    for request, reply in turns:
        messages += [{"role": "user", "content": request}, {"role": "assistant", "content": reply}]
    return [*messages, {"role": "user", "content": user}]


RZERO_SOLVER, RZERO_CHALLENGER = SolverTemplate(), ChallengerTemplate()
