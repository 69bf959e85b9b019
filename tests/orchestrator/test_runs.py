"""Runs are made whole or not at all, and found again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from core.settings.parsing import ConfigError
from orchestrator import runs
from orchestrator.installation.home import MICRO_MODEL, Home
from orchestrator.plan import plan
from orchestrator.question_sets.held_out import BenchmarkError, load_benchmark
from orchestrator.question_sets.prompts import PromptsError
from orchestrator.readiness import ModelError
from orchestrator.runs import RunError, check_start, prepare
from orchestrator.serving.checkpoints import turn
from orchestrator.stages.training import train_challenger
from services.inference.client import InferenceError
from storage import queries
from storage.errors import CheckpointError, StoreError
from storage.session import Store
from tests.synthetic_run import context_of, finish
from trainers.base import TrainError

EASYR1 = {"trainer.type": "easyr1"}
KEYED = {
    "solver.reward.type": "evol_rl",
    "solver.signals.embedder": {"url": "http://127.0.0.1:1/v1", "model": "m", "key_variable": "NO_SUCH_KEY"},
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def own(sqlite: Store) -> Store:
    return sqlite


def _names(store: Store) -> list[str]:
    with store.read() as session:
        return [row.name for row in queries.runs.list_runs(session)]


def test_a_run_that_is_there_has_its_base_model(home: Home, own: Store) -> None:
    config = prepare(home, own, "a", "demo", 0, {"seed": 5})
    assert (config.seed, config.iterations) == (5, 3)
    with own.read() as session:
        assert queries.checkpoints.get_checkpoint(session, "a/base/0").role == "base"


def test_a_crash_while_the_base_model_is_copied_leaves_no_run_and_no_trap(
    home: Home, own: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(runs, "publish", crash)
        with pytest.raises(KeyboardInterrupt):
            prepare(home, own, "a", "demo", 0, {})
    assert _names(own) == []
    prepare(home, own, "a", "demo", 0, {})
    assert _names(own) == ["a"]


def test_a_base_model_without_weights_is_refused_before_the_run_is_made(home: Home, own: Store, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(MICRO_MODEL, model)
    (model / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="safetensors"):
        prepare(home, own, "a", "demo", 0, {"base_model": str(model)})
    assert _names(own) == []
    assert prepare(home, own, "a", "demo", 0, {}).base_model == "micro"  # the setting corrected, the name is free


def test_a_run_goes_on_for_longer_but_never_for_less(home: Home, own: Store) -> None:
    assert prepare(home, own, "a", "demo", 0, {}).iterations == 3
    assert prepare(home, own, "a", "", 5, {}).iterations == 5
    assert prepare(home, own, "a", "demo", 0, {}).iterations == 5
    assert prepare(home, own, "a", "demo", 6, {}).iterations == 6
    assert prepare(home, own, "a", "", 2, {}).iterations == 6


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        (("a", "nosuch", 0, {}), ConfigError, "nosuch.*there are demo, .*rzero, "),
        (("a", "demo", -1, {}), RunError, "iterations: expected 1 or more, .* got -1"),
        (("a", "", 0, {}), StoreError, "run a: no such run"),
        (("a", "", 0, {"seed": 1}), RunError, "overrides: a run that exists keeps its settings"),
        (("../a", "demo", 0, {}), StoreError, "run name: expected"),
        (("a", "demo", 0, {"base_model": "nowhere"}), ModelError, "base_model: expected a folder .* got nowhere"),
        (
            ("a", "demo", 0, {"evaluation.benchmark": "nowhere.jsonl"}),
            BenchmarkError,
            r"evaluation\.benchmark: .* cannot read nowhere.jsonl",
        ),
        (
            ("a", "demo", 0, EASYR1 | {"solver.reward.type": "scrl"}),
            TrainError,
            "scrl: EasyR1 (?s:.*)mean_entropy",
        ),
        (("a", "demo", 0, EASYR1 | {"trainer.gpus_per_node": 7}), TrainError, "GPUs: .* expected a divisor of"),
        (("a", "demo", 0, KEYED), InferenceError, "key_variable: NO_SUCH_KEY is not set in the environment"),
    ],
)
def test_what_cannot_be_run_is_refused_and_leaves_nothing(
    home: Home, own: Store, arguments: tuple[str, str, int, dict[str, Any]], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        prepare(home, own, *arguments)
    assert _names(own) == []


def test_a_run_is_gone_on_with_only_where_it_can_start(home: Home, own: Store, tmp_path: Path) -> None:
    benchmark = tmp_path / "own.jsonl"
    benchmark.write_text(json.dumps({"id": "1", "problem": "What is 1 + 1?", "answer": "2"}))
    prepare(home, own, "a", "demo", 0, {"evaluation.benchmark": str(benchmark)})
    benchmark.unlink()
    with pytest.raises(BenchmarkError, match=r"evaluation\.benchmark: benchmark .*own\.jsonl: cannot read"):
        prepare(home, own, "a", "", 9, {})
    with own.read() as session:
        assert queries.runs.get_run(session, "a").config["iterations"] == 3


def test_an_iteration_can_begin_when_all_before_it_is_done(home: Home, own: Store) -> None:
    config = prepare(home, own, "a", "demo", 2, {})
    for t, stage in plan(config):
        for later in range(t + 1, 3):
            with pytest.raises(RunError, match=f"cannot begin iteration {later}: {stage} of iteration {t} is not done"):
                check_start(own, "a", config, later)
        if t:
            check_start(own, "a", config, t)
        with own.write() as session:
            finish(session, "a", t, stage, {}, 1)
    check_start(own, "a", config, 2)
    with pytest.raises(RunError, match="t: run a: expected an iteration from 1 to 2, got 3"):
        check_start(own, "a", config, 3)


def test_a_key_is_asked_for_only_where_the_method_needs_its_service(home: Home, own: Store) -> None:
    prepare(home, own, "a", "demo", 0, {**KEYED, "solver.reward.type": "rzero"})
    assert _names(own) == ["a"]


def test_labelled_data_that_are_all_held_out_are_refused(home: Home, own: Store, tmp_path: Path) -> None:
    file = tmp_path / "labelled.jsonl"
    item = load_benchmark("micro")[0]
    file.write_text(json.dumps({"problem": item.problem, "answer": item.answer}))
    with pytest.raises(PromptsError, match=r"labelled\.jsonl: expected some to train on, but all of them are held out"):
        prepare(home, own, "a", "demo", 0, {"labelled.file": str(file)})
    assert _names(own) == []


def test_a_challenger_that_is_not_trained_waits_for_no_turn(home: Home, own: Store) -> None:
    prepare(home, own, "a", "demo", 0, {"challenger.trained": False})
    with turn(home):
        last_write = train_challenger(context_of(own, "a", 1, home=home.path))
    with own.write() as session:
        assert last_write(session) == {"checkpoint": "a/base/0", "trained": False}
