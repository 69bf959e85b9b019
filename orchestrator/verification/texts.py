"""The texts of rollouts: a file for each stage that samples, with a text for each row of which the run keeps one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from core.grading.answers import extract_boxed
from core.types import evaluation_id
from orchestrator.question_sets.benchmarks import evaluated_in
from orchestrator.stages.training_rollouts import prompts_with_text
from orchestrator.verification.checks import Check, shown
from orchestrator.verification.labels import votes_by_question
from orchestrator.verification.subject import Subject
from orchestrator.verification.trainings import rollouts_at, trainings_of
from storage import queries
from storage.errors import StoreError
from storage.texts import evaluation_path, iterate_texts, texts_path

_Key = tuple[str, int]  # of a text: its question or prompt, and its sample


def texts(check: Check, subject: Subject) -> None:
    """Each stage that samples has a file of texts that can be read, with a text for exactly those rows of which the run
    keeps one (`rollout_text`). The answer of a vote is the one in its text."""
    for t in subject.voted:
        _votes(check, subject, t)
    _trainings(check, subject)
    if subject.config.rollout_text == "all":
        _evaluations(check, subject)


def _votes(check: Check, subject: Subject, iteration: int) -> None:
    keep = subject.config.rollout_text
    with subject.store.read() as session:
        labels = queries.questions.labels_of(session, subject.name, iteration, "kept" if keep == "kept" else None)
    votes_of = votes_by_question(subject, iteration) if keep != "none" else {}
    answers = {
        (vote.question_id, vote.sample_index): vote.answer
        for row in labels
        for vote in votes_of.get(row.question_id, [])
    }
    path = texts_path(subject.home.texts, subject.name, iteration, "label_questions")
    texts = _read(check, path, dict.fromkeys(answers))
    for key, text in texts.items():
        if key in answers and extract_boxed(text) != answers[key]:
            check.violate(f"{_name(key)}: answer", f"{shown(extract_boxed(text))}, as in its text", shown(answers[key]))


def _trainings(check: Check, subject: Subject) -> None:
    for training in trainings_of(subject):
        keys, rows = dict[_Key, None](), 0
        for step in training.steps:
            rollouts = rollouts_at(subject, training, step)
            rows += len(rollouts)
            kept = prompts_with_text(subject.config.rollout_text, rollouts)
            keys |= {(row.prompt_key, row.rollout): None for row in rollouts if row.prompt in kept}
        if rows:  # an earlier version of coevo stored none, and then there is no file
            _read(check, texts_path(subject.home.texts, subject.name, training.iteration, training.stage), keys)


def _evaluations(check: Check, subject: Subject) -> None:
    for _, result in subject.done("evaluate", "evaluate_labelled"):
        for benchmark in evaluated_in(subject.config):
            key = evaluation_id(result["checkpoint"], benchmark)
            with subject.store.read() as session:
                answers = queries.evaluations.answers_of(session, key)
            keys = {(answer.item_id, answer.sample_index): None for answer in answers}
            if keys:
                _read(check, evaluation_path(subject.home.texts, key), keys)


def _read(check: Check, path: Path, keys: Mapping[_Key, None]) -> dict[_Key, str]:
    """The texts of a file by their keys, which are compared with the expected ones; empty if it cannot be read."""
    texts = dict[_Key, str]()
    try:
        for question, sample, text in iterate_texts(path):
            if (question, sample) in texts:
                check.violate(_name((question, sample)), f"one text in {path}", "several")
            texts[question, sample] = text
    except StoreError as error:
        check.violate(str(path), "a file of texts that can be read", str(error))
        return {}
    check.checked += len(keys)
    for key in sorted(keys - texts.keys()):
        check.violate(_name(key), f"a text in {path}", "none")
    for key in sorted(texts.keys() - keys):
        check.violate(_name(key), f"no text in {path}", "one")
    return texts


def _name(key: _Key) -> str:
    return f"{key[0]}, sample {key[1]}"
