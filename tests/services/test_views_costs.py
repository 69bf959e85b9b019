"""What a run has cost, against amounts added up by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from api_examples import RUN, fill
from sqlalchemy import update

from core.settings.costs import Rates
from core.statistics.estimates import share
from core.types import Spent, StageKey
from services.views.costs import NOTHING, Amounts, costs_of, total_of
from storage import queries
from storage.models import PoolJobs
from storage.queries.tables import table_of
from storage.session import Store

LABELLING = StageKey(RUN, 1, "label_questions")
RATES = Rates(gpu_hour=3.6, cpu_hour=0.36, judge_prompt=10, judge_reply=30)


@pytest.fixture
def used(store: Store) -> Store:
    """The example's run, of which two labels of three are kept and right in one case, and what its stages used."""
    fill(store)
    with store.write() as session:
        add = queries.usage.add_usage
        for batch in (Spent(2, 40, 100), Spent(3, 60, 200)):  # two batches of a stage
            add(session, LABELLING, "votes", batch)
        add(session, LABELLING, "stage", seconds=30)
        add(session, LABELLING, "applications", seconds=20, gpu_seconds=40)
        add(session, StageKey(RUN, 1, "train_solver"), "training", Spent(8, 80, 800))
        add(session, StageKey(RUN, 1, "audit_labels"), "judge", Spent(5, 2_000, 1_000))
        training: dict[str, Any] = {"run": RUN, "iteration": 1, "stage": "train_solver", "owner": "me"}
        queries.pool.join_pool(session, **training, kind="GPU", units=2)
        queries.pool.leave_pool(session, **training)
        session.execute(update(table_of(PoolJobs)).values(used=2 * 50))
    return store


def test_the_amounts_of_a_run_add_up(used: Store) -> None:
    with used.read() as session:
        costs = costs_of(session, RUN, RATES)
    by_purpose = {(row.stage, row.purpose): row.amounts for row in costs.rows}
    assert by_purpose["label_questions", "votes"] == replace(NOTHING, requests=5, prompt_tokens=100, reply_tokens=300)
    assert by_purpose["label_questions", "stage"] == replace(NOTHING, seconds=30)
    # 40 GPU-seconds at 3.6 an hour
    assert by_purpose["label_questions", "applications"] == replace(NOTHING, gpu_seconds=40, money=pytest.approx(0.04))
    trained = {"gpu_seconds": 100, "requests": 8, "prompt_tokens": 80, "reply_tokens": 800}
    assert by_purpose["train_solver", "training"] == replace(NOTHING, **trained, money=pytest.approx(0.1))
    judge = by_purpose["audit_labels", "judge"]
    assert (judge.judge_requests, judge.money) == (5, pytest.approx(2_000 * 10e-6 + 1_000 * 30e-6))
    # with the example's 4 requests, 80 and 400 tokens of an evaluation
    total = Amounts(30, 0, 140, 22, 2_260, 2_500, 5, pytest.approx(0.19))
    assert costs.total == total
    with used.read() as session:
        assert total_of(session, RUN, RATES) == total


def test_a_right_label_costs_what_the_making_of_all_questions_took(used: Store) -> None:
    with used.read() as session:
        costs = costs_of(session, RUN, RATES)
    assert costs.kept == 2
    # The labelling made the questions; training on them and judging them did not.
    assert costs.making == Amounts(30, 0, 40, 5, 100, 300, 0, pytest.approx(0.04))
    [correct] = costs.correct
    one_of_two = share(1, 2)  # of the two kept labels one is right
    assert one_of_two is not None
    bounds = (2 * one_of_two.lo, 2 * one_of_two.hi)
    assert (correct.oracle, correct.questions.n, correct.questions.value) == ("exact", 2, 1)
    assert (correct.questions.lo, correct.questions.hi) == pytest.approx(bounds)
    assert correct.seconds.value == pytest.approx(40)
    assert (correct.seconds.lo, correct.seconds.hi) == pytest.approx((40 / bounds[1], 40 / bounds[0]))
    assert correct.money.value == pytest.approx(0.04)


def test_without_prices_there_is_no_currency_and_no_money(used: Store) -> None:
    with used.read() as session:
        costs = costs_of(session, RUN, Rates())
    assert costs.currency is None
    assert costs.total.money == 0
