from __future__ import annotations

import math

from store_examples import label, reads, writes

from core.questions.filtering import statistics
from core.types import LabelledQuestion
from storage.rows import TrainMetric
from storage.session import Store


def test_filter_statistics_are_returned_by_iteration_and_never_replaced(store: Store, run: str) -> None:
    two_questions = statistics([label(run, 0), LabelledQuestion("x", None, None, "malformed")])
    no_questions = statistics([])
    writes(store).figures.add_filter_stats(run=run, iteration=2, stats=no_questions)
    writes(store).figures.add_filter_stats(run=run, iteration=1, stats=two_questions)
    # Iteration 1 has statistics already: they are not replaced.
    writes(store).figures.add_filter_stats(run=run, iteration=1, stats=no_questions)
    assert list(reads(store).figures.filter_stats_of(run).items()) == [(1, two_questions), (2, no_questions)]


def test_training_metrics_keep_every_kind_of_number(store: Store, run: str) -> None:
    figures = {"reward": 0.1, "kl": math.inf, "loss": math.nan, "tokens": 1e-300, "steps": 3}
    writes(store).figures.add_train_metrics(run=run, iteration=1, role="solver", step=10, metrics=figures)
    writes(store).figures.add_train_metrics(run=run, iteration=1, role="solver", step=9, metrics={"reward": 1.0})
    writes(store).figures.add_train_metrics(run=run, iteration=1, role="challenger", step=0, metrics={})
    rows = reads(store).figures.train_metrics_of(run)
    assert rows == [
        TrainMetric(1, "solver", 9, "reward", 1.0),
        TrainMetric(1, "solver", 10, "kl", math.inf),
        TrainMetric(1, "solver", 10, "loss", None),
        TrainMetric(1, "solver", 10, "reward", 0.1),
        TrainMetric(1, "solver", 10, "steps", 3.0),
        TrainMetric(1, "solver", 10, "tokens", 1e-300),
    ]
    assert reads(store).figures.train_metrics_of(run, name="reward") == [rows[0], rows[3]]
    assert reads(store).figures.train_metrics_of(run, iteration=2) == []
    assert reads(store).figures.train_metrics_of(run, role="challenger") == []
