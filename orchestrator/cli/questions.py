"""`coevo show questions`: the questions of an iteration, or one with its votes. Models' texts in a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import TypeAdapter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from core.settings.parsing import ConfigError
from orchestrator.cli.addresses import Key, Url, client
from orchestrator.cli.terminal import AsJson, Iteration, Limit, RunName, first_rows, indented, printable, wide

if TYPE_CHECKING:
    from services.api.question_schemas import QuestionDetail
    from storage.rows import QuestionSummary

Verdicts = Annotated[
    list[str] | None, typer.Option("--verdict", help="Only questions with this verdict. May be given more than once.")
]
PHatMin = Annotated[
    float | None, typer.Option(help="Only questions with at least this p_hat, the pseudo-label's share of the votes.")
]
PHatMax = Annotated[float | None, typer.Option(help="Only questions with at most this p_hat.")]
Text = Annotated[str | None, typer.Option(help="Only questions that contain this text.")]
Cluster = Annotated[int | None, typer.Option(help="Only questions of this cluster of similar questions.")]
Oracle = Annotated[str | None, typer.Option(help="Only questions whose label this oracle has graded.")]
OracleVerdict = Annotated[
    str | None,
    typer.Option(help="Only questions whose label got this verdict, from --oracle if that is given, else from any."),
]


def questions(
    run: RunName,
    iteration: Iteration,
    verdict: Verdicts = None,
    p_hat_min: PHatMin = None,
    p_hat_max: PHatMax = None,
    text: Text = None,
    cluster: Cluster = None,
    oracle: Oracle = None,
    oracle_verdict: OracleVerdict = None,
    sort: Annotated[str, typer.Option(help="Sort by index or p_hat; with a leading - in descending order.")] = "index",
    limit: Limit = None,
    index: Annotated[
        int | None, typer.Option(help="Show the question with this index, with all its votes and verdicts.", min=0)
    ] = None,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Show the questions of an iteration, or one question, from the REST API. --json prints one question per line."""
    from services.api.question_schemas import QuestionDetail  # imports FastAPI, which takes half a second
    from storage.rows import QuestionSummary

    filters = {"verdict": verdict, "p_hat_min": p_hat_min, "p_hat_max": p_hat_max, "text": text}
    filters |= {"cluster": cluster, "oracle": oracle, "oracle_verdict": oracle_verdict}
    api, path = client(url, key), f"/runs/{run}/iterations/{iteration}/questions"
    used = [f"--{name.replace('_', '-')}" for name, value in filters.items() if value is not None]
    if index is not None and used:
        given = ", ".join(used)
        raise ConfigError(f"--index: expected no filter besides it, since it names one question; got {given}")
    if index is not None:
        question = api.get(f"{path}/{index}")
        if as_json:
            print(json.dumps(question))
        else:
            show(TypeAdapter(QuestionDetail).validate_python(question))
        return
    rows = api.items(path, **filters, sort=sort)
    if as_json:
        for row in islice(rows, limit or None):
            print(json.dumps(row))
        return
    empty = "No questions match these filters." if used else "No questions yet."
    _list(map(TypeAdapter(QuestionSummary).validate_python, rows), limit, empty)


def _list(questions: Iterable[QuestionSummary], limit: int | None, empty: str) -> None:
    shown, more = first_rows(questions, limit)
    if not shown:
        print(empty)
        return
    given = any(question.given_answer is not None for question in shown)
    truth = ["true answer (given)"] if given else []
    names = ("index", "verdict", "p_hat", "label", *truth, "oracles", "question")
    table = Table(*names, box=SIMPLE_HEAD, caption=more)
    for question in shown:
        truth = [question.given_answer or ""] if given else []
        oracles = ", ".join(f"{label.oracle}: {label.verdict}" for label in question.oracles)
        cells = (verdict_of(question), p_hat_of(question), question.answer or "", *truth, oracles)
        table.add_row(str(question.index), *map(printable, (*cells, question.text or "")))
    wide().print(table)


def verdict_of(question: QuestionSummary) -> str:
    """The verdict, with the gate that refused the question; empty if it has none yet."""
    return f"refused by {question.gate}" if question.gate is not None else question.verdict or ""


def p_hat_of(question: QuestionSummary) -> str:
    """p_hat as votes for the label of the votes that count, as in `6/10`; empty if nobody voted."""
    voters = question.m if question.denominator == "all" else question.parsed
    return f"{question.votes}/{voters}" if question.p_hat is not None else ""


def show(question: QuestionDetail) -> None:
    """Print a question's text, then what is stored about it, then its votes."""
    console = Console(highlight=False, emoji=False)
    console.print(f"[bold]{escape(question.id)}[/]  {escape(verdict_of(question)) or 'not labelled yet'}")
    text = "malformed, so it has no text; the output was:\n" + question.raw if question.text is None else question.text
    console.print(indented(text))
    facts = Table(show_header=False, box=None, pad_edge=False)
    for name, value in _facts(question):
        facts.add_row(name, value)
    console.print(facts)
    if question.rollouts:
        table = Table("vote", "answer", "tokens", "finish", "checkpoint", box=SIMPLE_HEAD)
        for vote in question.rollouts:
            cells = (vote.answer or "", str(vote.tokens), vote.finish_reason, vote.checkpoint)
            table.add_row(str(vote.sample_index), *map(printable, cells))
        console.print(table)


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
