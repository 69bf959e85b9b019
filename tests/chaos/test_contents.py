"""What is stored of a run, without what differs between two runs with the same seed and settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import UpdateBase, delete, update

from storage.files.texts import RolloutText, TextWriter, evaluation_path, texts_path
from storage.models import EvaluatedItems, Evaluations, PseudoLabels, Runs, Stages, Usage
from storage.session import Store
from tests.chaos.contents import Contents, contents_of, differences
from tests.synthetic_run import fill_run


def _contents(store: Store, texts: Path, run: str) -> Contents:
    with store.read() as session:
        return contents_of(session, texts, run)


def _write_texts(texts: Path, run: str, text: str) -> None:
    writer = TextWriter(texts_path(texts, run, 1, "label_questions"))
    writer.add(0, [RolloutText(f"{run}/1/000000", 0, text)])
    writer.finish()


def test_two_runs_that_differ_in_name_owners_and_times_are_equal(store: Store, tmp_path: Path) -> None:
    for run in ("first-run", "second-run"):
        fill_run(store, run, per_level=2)
        _write_texts(tmp_path, run, "It is 3.")
    with store.write() as session:
        session.execute(update(Stages).where(Stages.run == "second-run").values(owner="another", attempt=7))
    first = _contents(store, tmp_path, "first-run")
    assert differences(first, _contents(store, tmp_path, "second-run")) == []
    assert {"questions", "pseudo_labels", "checkpoints", "evaluated_items", "train_metrics"} <= {
        name for name, rows in first.items() if rows
    }
    assert first["1/label_questions.parquet"] == ['["RUN/1/000000", 0, "It is 3."]']


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("pseudo_labels", update(PseudoLabels).where(PseudoLabels.question_id == "a-run/1/000000").values(votes=1)),
        ("runs", update(Runs).values(status="failed")),
        ("stages", delete(Stages).where(Stages.iteration == 2, Stages.stage == "evaluate")),
        ("evaluated_items", update(EvaluatedItems).where(EvaluatedItems.item_id.like("%0")).values(correct=99)),
        ("evaluations", update(Evaluations).values(benchmark="another")),
    ],
)
def test_a_changed_or_missing_row_is_named(sqlite: Store, tmp_path: Path, table: str, change: UpdateBase) -> None:
    fill_run(sqlite, "a-run", per_level=2)
    before = _contents(sqlite, tmp_path, "a-run")
    with sqlite.write() as session:
        session.execute(change)
    sentences = differences(before, _contents(sqlite, tmp_path, "a-run"))
    assert any(sentence.startswith(f"{table}: a row is missing: ") for sentence in sentences)


def test_a_changed_text_and_a_row_that_is_too_many_are_named(sqlite: Store, tmp_path: Path) -> None:
    fill_run(sqlite, "a-run", per_level=2)
    _write_texts(tmp_path, "a-run", "It is 3.")
    before = _contents(sqlite, tmp_path, "a-run")
    texts_path(tmp_path, "a-run", 1, "label_questions").unlink()
    _write_texts(tmp_path, "a-run", "It is 4.")
    with sqlite.write() as session:
        usage = {"run": "a-run", "iteration": 1, "stage": "evaluate", "purpose": "evaluation"}
        amounts = dict.fromkeys(("seconds", "cpu_seconds", "gpu_seconds", "requests", "prompt_tokens"), 0)
        session.add(Usage(**usage, **amounts, reply_tokens=5))
    assert differences(before, _contents(sqlite, tmp_path, "a-run")) == [
        '1/label_questions.parquet: a row is missing: ["RUN/1/000000", 0, "It is 3."]',
        '1/label_questions.parquet: a row is too many: ["RUN/1/000000", 0, "It is 4."]',
        'usage: a row is too many: {"run": "RUN", "iteration": 1, "stage": "evaluate", "purpose": "evaluation", '
        '"requests": 0, "prompt_tokens": 0, "reply_tokens": 5}',
    ]


def test_the_texts_of_a_run_s_evaluations_belong_to_it(sqlite: Store, tmp_path: Path) -> None:
    fill_run(sqlite, "a-run", per_level=2)
    with sqlite.read() as session:
        key, benchmark = session.query(Evaluations.id, Evaluations.benchmark).filter_by(model="a-run/base/0").one()
    writer = TextWriter(evaluation_path(tmp_path, key))
    writer.add(0, [RolloutText("i0", -1, "I give up.")])
    writer.finish()
    assert _contents(sqlite, tmp_path, "a-run")[f"RUN/base/0 on {benchmark}"] == ['["i0", -1, "I give up."]']
