"""`coevo questions --index`: one question, and all that was said of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

if TYPE_CHECKING:
    from services.api.question_schemas import Question, QuestionDetail

_LINES, _LONGEST = 200, 2_000  # of a question


def printable(text: str, most: int = 300) -> str:
    """What a model wrote, on one line and without what a terminal or Rich would obey."""
    return escape("".join(c if c.isprintable() else " " for c in text)[:most])


def p_hat_of(question: Question) -> str:
    """`0.60 of 10`; empty where nobody voted."""
    asked = question.m if question.denominator == "all" else question.parsed
    return f"{question.p_hat:.2f} of {asked}" if question.p_hat is not None else ""


def show(question: QuestionDetail) -> None:
    """Print it for people: the question, what came of it, and its votes."""
    console = Console(highlight=False, emoji=False)
    console.print(f"[bold]{escape(question.id)}[/]  {question.verdict or 'not labelled yet'}")
    text = (
        "it is malformed, and has no text; what was written:\n" + question.raw
        if question.text is None
        else question.text
    )
    lines = [printable(line, _LONGEST) for line in text.splitlines()[:_LINES]]
    console.print(Padding("\n".join(lines), (1, 0, 1, 2)))
    facts = Table(show_header=False, box=None, pad_edge=False)
    for name, value in _facts(question):
        facts.add_row(name, value)
    console.print(facts)
    if question.rollouts:
        console.print(_votes(question))


def _facts(question: QuestionDetail) -> Iterator[tuple[str, str]]:
    yield "written by", printable(question.checkpoint or "nobody here: it is a given prompt")
    if question.given_answer is not None:
        yield "given answer", printable(question.given_answer)
    if question.m is not None:
        label = "none" if question.answer is None else printable(question.answer)
        yield "label", f"{label}, by {question.votes} of {question.m} votes; {question.parsed} have an answer"
        yield "p_hat", p_hat_of(question)
        yield (
            "answers",
            "; ".join(f"{printable(votes_for.answer)} ({votes_for.votes})" for votes_for in question.classes),
        )
    if question.unknown:
        yield "undecided", f"{question.unknown} comparisons of answers"
    for verdict in question.oracles:
        yield (
            f"{verdict.oracle} says",
            verdict.verdict + (f": the answer is {printable(verdict.truth)}" if verdict.truth else ""),
        )
    for word in question.annotations:
        yield f"{printable(word.annotator)} says", word.verdict + (f": {printable(word.note)}" if word.note else "")
    if question.cluster is not None:
        yield "cluster", f"number {question.cluster.number}, size {question.cluster.size}"
    for learned in question.trained_on:
        yield "trained on by", f"{printable(learned.checkpoint)}, at steps {', '.join(map(str, learned.steps))}"


def _votes(question: QuestionDetail) -> Table:
    table = Table("vote", "answer", "tokens", "finish", "checkpoint", box=SIMPLE_HEAD)
    for vote in question.rollouts:
        answer = "" if vote.answer is None else printable(vote.answer)
        table.add_row(str(vote.sample_index), answer, str(vote.tokens), vote.finish_reason, printable(vote.checkpoint))
    return table
