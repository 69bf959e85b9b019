"""The questions, labels and truths that a training gets."""

from __future__ import annotations

import pytest

from core.methods import Method
from core.methods.rent import Rent
from core.methods.rzero import RZero
from core.methods.scrl import Scrl
from core.settings.config import RunConfig
from orchestrator.stages.context import StageError
from orchestrator.stages.train_solver import kept_questions
from storage.session import Store
from tests.synthetic_run import CONFIG, context_of, create, label, vote_of


def config_of(method: Method) -> RunConfig:
    return CONFIG.model_copy(update={"solver": CONFIG.solver.model_copy(update={"reward": method})})


def truths(store: Store, method: Method) -> list[str | None]:
    config = config_of(method)
    with store.write() as session:
        create(session, method.type, config)
        texts = ["What is 2 + 3?", "What is 4 + ?"]  # the second question is ill-posed
        label(session, method.type, 1, [(text, vote_of(("6", 6), ("5", 4))) for text in texts], config)
    questions = kept_questions(context_of(store, method.type, 1, config=config))
    assert [question.label for question in questions] == ["6", "6"]
    return [question.truth for question in questions]


def test_labels_made_in_training_are_compared_with_the_exact_oracle(sqlite: Store) -> None:
    well_posed, ill_posed = truths(sqlite, Scrl())
    assert well_posed == "5"
    assert ill_posed == "no answer"  # no label of this question is right


@pytest.mark.parametrize("method", [RZero(), Rent()], ids=lambda method: method.type)
def test_a_training_that_makes_no_labels_gets_no_truths(sqlite: Store, method: Method) -> None:
    assert truths(sqlite, method) == [None, None]


def test_an_iteration_without_a_kept_question_cannot_train(sqlite: Store) -> None:
    with sqlite.write() as session:
        create(session, "none", CONFIG)
    with pytest.raises(StageError, match="no question was kept"):
        kept_questions(context_of(sqlite, "none", 1))
