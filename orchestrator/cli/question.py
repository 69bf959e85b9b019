"""Questions and models' texts in a terminal, as `coevo questions --index` prints them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from core.unicode import without_commands

if TYPE_CHECKING:
    from services.api.question_schemas import QuestionDetail
    from storage.rows import QuestionSummary

_MAX_LINES, _MAX_LINE_CHARS = 200, 2_000  # of a question's text


def printable(text: str, max_chars: int = 300) -> str:
    """A model's text on one line, without characters that a terminal or Rich would take for commands."""
    return escape(without_commands(text).replace("\n", " ")[:max_chars])


def indented(text: str) -> Padding:
    """A model's text with its line breaks, between empty lines. Its length is limited."""
    lines = [printable(line, _MAX_LINE_CHARS) for line in text.splitlines()[:_MAX_LINES]]
    return Padding("\n".join(lines), (1, 0, 1, 2), expand=False)


def p_hat_of(question: QuestionSummary) -> str:
    """p_hat as votes for the label of the votes that count, as in `6/10`; empty if nobody voted."""
    voters = question.m if question.denominator == "all" else question.parsed
    return f"{question.votes}/{voters}" if question.p_hat is not None else ""


def show(question: QuestionDetail) -> None:
    """Print a question's text, then what is stored about it, then its votes."""
    console = Console(highlight=False, emoji=False)
    console.print(f"[bold]{escape(question.id)}[/]  {question.verdict or 'not labelled yet'}")
    text = "malformed, so it has no text; the output was:\n" + question.raw if question.text is None else question.text
    console.print(indented(text))
    facts = Table(show_header=False, box=None, pad_edge=False)
    for name, value in _facts(question):
        facts.add_row(name, value)
    console.print(facts)
    if question.rollouts:
        console.print(_votes(question))


def _facts(question: QuestionDetail) -> Iterator[tuple[str, str]]:
    yield "written by", printable(question.checkpoint or "no model: it is a given prompt")
    if question.given_answer is not None:
        yield "given answer", printable(question.given_answer)
    if question.m is not None:
        label = "none" if question.answer is None else printable(question.answer)
        yield "label", f"{label}, with {question.votes} of {question.m} votes; {question.parsed} votes have an answer"
        yield "p_hat", p_hat_of(question)
        yield (
            "answers",
            "; ".join(f"{printable(answer.answer)} ({answer.votes})" for answer in question.classes),
        )
    if question.unknown:
        yield "undecided", f"{question.unknown} comparisons of answers"
    for verdict in question.oracles:
        yield (
            f"{verdict.oracle} says",
            verdict.verdict + (f": the answer is {printable(verdict.truth)}" if verdict.truth else ""),
        )
    for annotation in question.annotations:
        note = f": {printable(annotation.note)}" if annotation.note else ""
        yield f"{printable(annotation.annotator)} says", annotation.verdict + note
    if question.cluster is not None:
        yield "cluster", f"number {question.cluster.number}, size {question.cluster.size}"
    for training in question.trained_on:
        yield "trained on by", f"{printable(training.checkpoint)}, at steps {', '.join(map(str, training.steps))}"


def _votes(question: QuestionDetail) -> Table:
    table = Table("vote", "answer", "tokens", "finish", "checkpoint", box=SIMPLE_HEAD)
    for vote in question.rollouts:
        answer = "" if vote.answer is None else printable(vote.answer)
        table.add_row(str(vote.sample_index), answer, str(vote.tokens), vote.finish_reason, printable(vote.checkpoint))
    return table
