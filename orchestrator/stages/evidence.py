"""Asks what the gates must be told about their candidates (`core.challenger.gates`), and stores it in batches.

What is stored already is not asked again. Every seed derives from the run's, the iteration, the gate and the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import aiohttp

from core.asking.service import Service
from core.challenger.gates import Candidate, Evidence, Gate
from core.challenger.gates.judge import JudgeGate
from core.challenger.gates.reordered import Reordered, in_tiny_worlds, paraphrase_messages
from core.challenger.gates.solvers import Solvers
from core.grading.answers import extract_boxed
from core.judging.replies import Case, Claimed
from core.questions.parsing import parse_question
from core.settings.config import CoEvolution
from core.types import Checkpoint, Spent, question_key
from core.worlds import solve
from orchestrator.evaluation.judging import ask_in_batches
from orchestrator.run import BATCH
from orchestrator.stages.context import Context, StageError
from services.inference.client import spent
from services.inference.encoding import control_tokens
from services.inference.engines.base import Prompt
from services.inference.external import RequestRefused, ask_each
from services.inference.external_chats import ask_chat
from services.oracles.judge import JudgedBatch
from storage import queries

_PARAPHRASES_AT_ONCE = 16
_PARAPHRASE_TOKENS = 2048

# What is asked in place of each question of a batch, None where there is nothing, and what it took to find it.
Forms = Callable[[Sequence[Candidate]], tuple[list[str | None], Spent]]


def gather_evidence(
    context: Context[CoEvolution], gate: Gate, candidates: Sequence[Candidate]
) -> dict[str, tuple[Evidence, ...]]:
    """What the gate must be told about the candidates, by question. Raises `StageError` and what the services raise."""
    solver = context.checkpoint("solver")
    match gate.needs:
        case "other_solvers":
            for rank, other in enumerate(earlier_solvers(context, solver, cast(Solvers, gate).earlier), 1):
                _ask_solver(context, gate.type, cast(Solvers, gate).votes, other, candidates, rank)
        case "other_form":
            forms = _forms(context, cast(Reordered, gate), solver)
            _ask_solver(context, gate.type, cast(Reordered, gate).votes, solver, candidates, 0, forms)
        case "judge":
            _ask_judge(context, cast(JudgeGate, gate), candidates)
    return _stored(context, gate.type, candidates)


def ask_again(context: Context[CoEvolution], candidates: Sequence[Candidate]) -> dict[str, tuple[str | None, ...]]:
    """The answers of the iteration's Solver to questions of earlier iterations, as many as a question gets votes."""
    solver = context.checkpoint("solver")
    _ask_solver(context, "replay", context.config.dataset.votes, solver, candidates, 0)
    told = _stored(context, "replay", candidates)
    return {key: row.answers for key, rows in told.items() for row in rows if row.voter == solver.id}


def _stored(context: Context, gate: str, candidates: Sequence[Candidate]) -> dict[str, tuple[Evidence, ...]]:
    """What is stored about the candidates' iterations, by question."""
    places = dict.fromkeys(question_key(row.question_id)[:2] for row in candidates)
    with context.store.read() as session:
        return {
            key: rows
            for run, iteration in places
            for key, rows in queries.questions.evidence_of(session, run, iteration, gate).items()
        }


def earlier_solvers(context: Context[CoEvolution], solver: Checkpoint, count: int) -> list[Checkpoint]:
    """The Solvers that this one was trained from, the last first: at most `count`, down to the base model.

    Raises:
        StageError: the files of one were removed.
    """
    with context.store.read() as session:
        _, *before = queries.checkpoints.lineage(session, solver.id)
    solvers = [checkpoint for checkpoint in before if checkpoint.role in ("solver", "base")][:count]
    if removed := [checkpoint.id for checkpoint in solvers if checkpoint.files_removed]:
        raise StageError(
            f"run {context.run}, iteration {context.iteration}: dataset.gates: solvers asks earlier Solvers: expected "
            f"their files, but those of {', '.join(removed)} were removed"
        )
    return solvers


def _ask_solver(
    context: Context[CoEvolution],
    gate: str,
    votes: int,
    solver: Checkpoint,
    candidates: Sequence[Candidate],
    rank: int,
    forms: Forms | None = None,
) -> None:
    """Store a Solver's answers to the candidates, or to other forms of them. `rank` tells the gate's Solvers apart."""
    config, note = context.config, f"questions asked for {gate}"
    told = _stored(context, gate, candidates)
    remaining = [row for row in candidates if all(one.voter != solver.id for one in told.get(row.question_id, ()))]
    if not remaining:
        return
    batches = [remaining[start : start + BATCH] for start in range(0, len(remaining), BATCH)]
    asked = list[tuple[list[str | None], Spent]]()  # of each batch that was sent

    def prompts() -> Iterator[list[Prompt]]:
        for batch in batches:
            asked.append(forms(batch) if forms else ([row.question for row in batch], Spent()))
            yield [
                Prompt(
                    tuple(config.solver.template.messages(text)),
                    context.seed("admit", gate, rank, *question_key(row.question_id)[1:]),
                    votes,
                    config.dataset.sampling,
                )
                for row, text in zip(batch, asked[-1][0], strict=True)
                if text is not None
            ]

    with (
        context.serving({"solver": solver}),
        context.replies_in_order("solver", solver, prompts()) as replies_of_batches,
    ):
        done = len(candidates) - len(remaining)
        context.progress(done, len(candidates), note)
        for number, (batch, replies) in enumerate(zip(batches, replies_of_batches, strict=True)):
            (texts, of_forms), groups = asked[number], iter(replies)
            rows = [
                Evidence(
                    row.question_id,
                    gate,
                    solver.id,
                    text if forms else None,
                    () if text is None else tuple(extract_boxed(reply.text) for reply in next(groups)),
                )
                for row, text in zip(batch, texts, strict=True)
            ]
            with context.write() as session:
                queries.questions.add_evidence(session, rows)
                queries.usage.add_usage(session, context.key, "votes", spent(replies))
                if of_forms.requests:
                    queries.usage.add_usage(session, context.key, "questions", of_forms)
            done += len(batch)
            context.batch_done(done, len(candidates), note)


def _forms(context: Context[CoEvolution], gate: Reordered, solver: Checkpoint) -> Forms:
    """Other forms of questions: by a program in the tiny worlds, elsewhere by the gate's paraphraser, if it has one."""
    dataset, tokens = context.config.dataset, control_tokens(Path(solver.path))

    def forms(batch: Sequence[Candidate]) -> tuple[list[str | None], Spent]:
        found = [in_tiny_worlds(row) for row in batch]
        if gate.paraphraser is None:
            return found, Spent()
        unknown = [i for i, row in enumerate(batch) if solve(row.question) is None]
        replies = asyncio.run(_paraphrased(gate.paraphraser, [batch[i] for i in unknown]))
        for i, (text, _) in zip(unknown, replies, strict=True):
            form = parse_question(text, dataset.max_question_chars, "tags", dataset.refused_texts, tokens)
            found[i] = form if form != batch[i].question else None
        return found, sum((took for _, took in replies), Spent())

    return forms


async def _paraphrased(service: Service, candidates: Sequence[Candidate]) -> list[tuple[str, Spent]]:
    """The service's reply to each candidate, empty if it refuses the request, and what it took."""

    async def ask(http: aiohttp.ClientSession, row: Candidate) -> tuple[str, Spent]:
        try:
            messages = paraphrase_messages(row.question)
            reply = await ask_chat(http, service, messages, _PARAPHRASE_TOKENS, seed=row.seed % 2**31)
        except RequestRefused:  # a question that a service refuses has no other form
            return "", Spent(1)
        return ("" if reply.filtered else reply.text), reply.spent

    return await ask_each(service, candidates, ask, _PARAPHRASES_AT_ONCE)


def _ask_judge(context: Context[CoEvolution], gate: JudgeGate, candidates: Sequence[Candidate]) -> None:
    """Store what the judge says about the candidates' labels."""

    def save(batch: JudgedBatch) -> None:
        rows = [Evidence(label.question_id, gate.type, gate.oracle, None, (label.verdict,)) for label in batch.labels]
        with context.write() as session:
            queries.questions.add_evidence(session, rows)
            queries.usage.add_usage(session, context.key, "judge", batch.spent)

    cases = [Case(row.question_id, row.question, Claimed(row.label.answer or "")) for row in candidates]
    seed = context.seed("admit", gate.type)
    ask_in_batches(
        cases, _stored(context, gate.type, candidates), gate, seed, save, context.batch_done, "labels judged"
    )
