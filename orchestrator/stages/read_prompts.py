"""Stores the given prompts as questions of iteration 0. If they are voted on, `label_questions` labels them."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from core.questions.filtering import filter_questions, statistics
from core.settings.config import SelfTraining
from core.types import LabelledQuestion, Question, question_id
from orchestrator.ledger import LastWrite
from orchestrator.question_sets.held_out import held_out_texts
from orchestrator.question_sets.prompts import read_prompts as read_prompt_set
from orchestrator.stages.context import Context
from storage import queries


def read_prompts(context: Context[SelfTraining]) -> LastWrite:
    config, run = context.config, context.run.name
    questions = [
        Question(question_id(run, 0, i), run, 0, i, prompt.text, prompt.text, None, 0, prompt.answer)
        for i, prompt in enumerate(read_prompt_set(config, config.prompts))
    ]
    refused = filter_questions(questions, held_out_texts(config))  # question id -> verdict

    def last_write(session: Session) -> dict[str, Any]:
        queries.questions.add_questions(session, questions)
        if not config.prompts.voted:
            labels = [
                LabelledQuestion(question.id, question.text, None, refused.get(question.id, "kept"))
                for question in questions
            ]
            queries.questions.add_labels(session, labels)
            queries.figures.add_filter_stats(session, run=run, iteration=0, stats=statistics(labels))
            queries.questions.gather_statistics(session)
        return {"prompts": len(questions), "refused": len(refused)}

    return last_write
