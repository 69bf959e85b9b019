"""A run ends when it has spent its budget, and goes on with a larger one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from core.settings.config import CoEvolution
from core.settings.costs import Budget, Rates
from core.types import Spent, StageKey
from orchestrator import runs
from orchestrator.check.start import RunError
from orchestrator.costs import BudgetSpent, Meter, refuse_spent
from orchestrator.installation.home import Home
from orchestrator.ledger import run_held
from orchestrator.stages.training.running import reward_spent
from storage import queries
from storage.session import Store
from tests.synthetic_run import run_of

KEY = StageKey("r", 1, "label_questions")


@pytest.fixture
def used(store: Store) -> Store:
    """A run with two hours of stages, 1,000 tokens, 10 calls of a judge, and 3 GPU-hours."""
    with store.write() as session:
        queries.runs.create_run(session, name="r", config=CoEvolution())
        queries.usage.add_usage(session, KEY, "stage", seconds=7200)
        queries.usage.add_usage(session, KEY, "applications", gpu_seconds=3 * 3600)
        queries.usage.add_usage(session, KEY, "judge", Spent(10, 400, 600))
    return store


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"hours": 2}, "budget.hours: 2 of 2 are spent"),
        ({"tokens": 999}, "budget.tokens: 1,000 of 999 are spent"),
        ({"judge_calls": 9}, "budget.judge_calls: 10 of 9 are spent"),
        ({"money": 7.5}, "budget.money: 7.5 of 7.5 are spent"),
        ({"hours": 2.01, "tokens": 1001, "judge_calls": 11, "money": 7.51}, None),
        ({}, None),
    ],
)
def test_a_budget_is_spent_at_its_limit(used: Store, limits: dict[str, float], message: str | None) -> None:
    config = CoEvolution(budget=Budget(**limits), rates=Rates(gpu_hour=2.5))
    if message is None:
        refuse_spent(used, "r", config)
    else:
        with pytest.raises(BudgetSpent, match=rf"^run r: {message}.*`coevo resume r --set budget\."):
            refuse_spent(used, "r", config)


@pytest.mark.parametrize("error", [None, KeyError], ids=["both are stored", "the first transaction fails"])
def test_a_meter_charges_the_time_since_it_was_charged_last(used: Store, error: type[Exception] | None) -> None:
    times = iter([100.0, 110.0, 115.0])
    key = StageKey("r", 1, "evaluate")
    meter = Meter(key, "applications", {"CPU": 1.5, "GPU": 4}, clock=lambda: next(times))
    for fails in (error, None):
        with suppress(KeyError), used.write() as session:
            meter.charge(session)
            if fails:
                raise fails
    with used.read() as session:
        [row] = [row for row in queries.usage.usage_of(session, "r") if row.stage == "evaluate"]
    assert (row.seconds, row.cpu_seconds, row.gpu_seconds) == (15, 22.5, 60)


def test_a_run_without_budget_left_has_a_status_of_its_own(used: Store) -> None:
    with pytest.raises(BudgetSpent), run_held(used, "r"), runs.status_kept(run_of(used, "r")):
        refuse_spent(used, "r", CoEvolution(budget=Budget(tokens=1)))
    assert runs.status_of(used, "r") == "out_of_budget"


def test_an_existing_run_gets_another_budget_but_no_other_settings(tmp_path: Path, store: Store) -> None:
    home = Home(tmp_path)
    first: dict[str, Any] = {"budget.tokens": 1000}
    assert runs.prepare(home, store, "demo", "demo", 1, first).budget == Budget(tokens=1000)
    assert runs.prepare(home, store, "demo", "", 0, {}).budget == Budget(tokens=1000)
    more: dict[str, Any] = {"budget.tokens": 5000, "rates.gpu_hour": 2.5}
    config = runs.prepare(home, store, "demo", "", 0, more)
    assert (config.budget, config.rates, config.iterations) == (Budget(tokens=5000), Rates(gpu_hour=2.5), 1)
    assert runs.stored_config(store, "demo") == config
    with pytest.raises(RunError, match=r"got dataset\.votes"):
        runs.prepare(home, store, "demo", "", 0, {"dataset.votes": 3, "budget.tokens": 1})
    with pytest.raises(RunError, match=r"budget\.tokens"):
        runs.prepare(home, store, "demo", "", 0, {"budget.tokens": -1})


def test_the_reward_s_tokens_are_those_of_all_steps() -> None:
    step = {"reward_requests": 3.0, "reward_prompt_tokens": 60.0, "reward_reply_tokens": 90.0, "reward_mean": 0.5}
    assert reward_spent([step, step, {"malformed_share": 1.0}]) == Spent(6, 120, 180)
