"""Has C(t) write N candidates and stores them, malformed ones too (R-Zero 2.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from core.questions.parsing import parse_question
from core.questions.similarity import clusters
from core.settings.config import CoEvolution
from core.types import Question, question_id
from orchestrator.ledger import LastWrite
from orchestrator.run import BATCH
from orchestrator.stages.context import Context
from services.inference.client import spent
from services.inference.encoding import control_tokens
from services.inference.engines.base import Prompt, VocabularyDropout
from storage import queries
from storage.rows import ClusterRow

# Those of a request share a mask over the vocabulary (`challenger.vocabulary_retention`). They are fewer than a batch,
# because a few hundred questions need several masks: a word that a mask drops is in none of its questions.
_QUESTIONS_PER_REQUEST = 64
_MAX_COMPARED = 10_000  # questions; their distances take 400 MB


def generate_questions(context: Context[CoEvolution]) -> LastWrite:
    run, t, dataset = context.run.name, context.iteration, context.config.dataset
    settings, total, first_seed = context.config.challenger, dataset.candidates, context.seed("generate")
    challenger = context.checkpoint("challenger")
    # Those of the model that will be asked: a question with one of them is malformed.
    solver_tokens = control_tokens(Path(context.checkpoint("solver").path))
    messages = tuple(settings.template.messages())
    with context.store.read() as session:
        done = queries.questions.count_questions(session, run, t)
    starts = range(done - done % BATCH, total, BATCH) if done < total else range(0)

    def prompt(first: int, end: int) -> Prompt:
        count, retention, dropout = min(_QUESTIONS_PER_REQUEST, end - first), settings.vocabulary_retention, None
        if retention < 1:
            dropout = VocabularyDropout(retention=retention, seed=context.seed("vocabulary", first))
        return Prompt(messages, first_seed + first, count, settings.training.sampling, dropout=dropout)

    def prompts() -> Iterator[list[Prompt]]:
        for start in starts:
            end = min(start + BATCH, total)
            yield [prompt(first, end) for first in range(start, end, _QUESTIONS_PER_REQUEST)]

    with (
        context.serving({"challenger": challenger}),
        context.replies_in_order("challenger", challenger, prompts()) as replies_of_batches,
    ):
        context.progress(done, total, "questions")
        for start, groups in zip(starts, replies_of_batches, strict=True):
            replies = [reply for group in groups for reply in group]
            questions = list[Question]()
            for index, reply in enumerate(replies, start):
                text = parse_question(
                    reply.text, dataset.max_question_chars, settings.reward.format, dataset.refused_texts, solver_tokens
                )
                key = question_id(run, t, index)
                questions.append(Question(key, run, t, index, text, reply.text, reply.checkpoint, reply.seed))
            with context.write() as session:
                queries.questions.add_questions(session, questions)
                queries.usage.add_usage(session, context.key, "questions", spent(groups))
            context.batch_done(start + len(replies), total, "questions")

    # The clusters of similar questions, found as the Challenger's reward finds them in a batch; 0 is the largest. Every
    # pair has a distance, so there are none if the questions are too many.
    with context.store.read() as session:
        stored = queries.questions.questions_of(session, run, t)
    well_formed = [(question.id, question.text) for question in stored if question.text is not None]
    cluster_rows = list[ClusterRow]()
    if len(well_formed) <= _MAX_COMPARED:
        cluster_of = clusters([text for _, text in well_formed], settings.reward.bleu_distance)
        size = dict(Counter(cluster_of).most_common())
        rank = {cluster: number for number, cluster in enumerate(size)}
        cluster_rows = [
            ClusterRow(key, run, t, rank[cluster], size[cluster])
            for (key, _), cluster in zip(well_formed, cluster_of, strict=True)
        ]

    def last_write(session: Session) -> dict[str, Any]:
        queries.traces.add_clusters(session, cluster_rows)
        return {"candidates": total, "challenger": challenger.id}

    return last_write
