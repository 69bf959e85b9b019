"""Runs are made completely or not at all, and can be continued; the REST API's process checks what it can before."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from core.processes import identity as processes
from core.settings.config import RunConfig
from core.settings.parsing import load_config, parse_config, read_preset
from core.settings.provenance import settings_of
from orchestrator import runs
from orchestrator.check.refusals import UnreadyError, refuse_as_the_api_can, refuse_unready
from orchestrator.check.start import RunError, check_startable
from orchestrator.installation.home import MICRO_MODEL, PRESETS, Home, Services
from orchestrator.plan import plan
from orchestrator.question_sets.benchmarks import load_benchmark
from orchestrator.runs import check_start, clear, ended_as, prepare, set_status
from orchestrator.serving.turns import exclusive_use
from orchestrator.stages.train_challenger import train_challenger
from storage import queries
from storage.errors import StoreError
from storage.rows import RunStatus
from storage.session import Store
from tests.synthetic_run import context_of, finish, run_of

EASYR1 = {"trainer.type": "easyr1"}
KEYED = {
    "solver.reward.type": "evol_rl",
    "solver.signals.embedder": {"url": "http://127.0.0.1:1/v1", "model": "m", "key_variable": "NO_SUCH_KEY"},
}


@pytest.fixture
def store(sqlite: Store) -> Store:
    return sqlite


def _names(store: Store) -> list[str]:
    with store.read() as session:
        return [row.name for row in queries.runs.list_runs(session)]


def test_a_new_run_has_its_base_model_the_preset_s_settings_and_the_overrides(home: Home, store: Store) -> None:
    config = prepare(home, store, "a", "demo", 2, {"seed": 5})
    assert (config.seed, config.iterations) == (5, 2)
    prepare(home, store, "a", "demo", 4, {"seed": 5})  # it goes on for longer, and its origin stays
    with store.read() as session:
        assert queries.checkpoints.get_checkpoint(session, "a/base/0").role == "base"
        origin, stored = queries.runs.origin_of(session, "a"), queries.runs.get_run(session, "a").config
    assert origin.preset_settings == read_preset(PRESETS / "demo.toml")
    assert origin.overrides == {"seed": 5, "iterations": 2}
    own = (origin.preset_settings, origin.overrides or {}, queries.runs.LIMITS)
    sources = {setting.name: setting.source for setting in settings_of(parse_config(stored, "a"), *own)}
    assert (sources["iterations"], sources["seed"]) == ("continued", "override")


def test_a_crash_while_the_base_model_is_copied_leaves_no_run_and_the_name_can_be_used(
    home: Home, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(runs, "publish", crash)
        with pytest.raises(KeyboardInterrupt):
            prepare(home, store, "a", "demo", 0, {})
    assert _names(store) == []
    prepare(home, store, "a", "demo", 0, {})
    assert _names(store) == ["a"]


def test_a_base_model_without_weights_is_refused_before_the_run_is_made(
    home: Home, store: Store, tmp_path: Path
) -> None:
    shutil.copytree(MICRO_MODEL, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(RunError, match=r"base_model: .*safetensors"):
        prepare(home, store, "a", "demo", 0, {"base_model": str(tmp_path / "model")})
    assert _names(store) == []
    assert prepare(home, store, "a", "demo", 0, {}).base_model == "micro"  # with a correct setting the name can be used


def test_a_run_can_get_more_iterations_but_never_fewer(home: Home, store: Store) -> None:
    assert prepare(home, store, "a", "demo", 0, {}).iterations == 3
    assert prepare(home, store, "a", "", 5, {}).iterations == 5
    assert prepare(home, store, "a", "demo", 0, {}).iterations == 5
    assert prepare(home, store, "a", "demo", 6, {}).iterations == 6
    for preset, iterations, overrides in [("", 2, {}), ("demo", 2, {}), ("", 0, {"iterations": 2})]:
        with pytest.raises(RunError, match=r"^iterations: expected at least 6, got 2"):
            prepare(home, store, "a", preset, iterations, overrides)
    assert prepare(home, store, "a", "", 6, {}).iterations == 6


ONE_TRAINING = {"solver.training.optimiser": "continued"}
COSINE = {"solver.training.schedule": "cosine"}


def test_a_run_whose_cosine_ends_with_its_last_round_gets_no_more_rounds(home: Home, store: Store) -> None:
    """The learning rates of the rounds before would have been others."""
    prepare(home, store, "a", "micro", 2, ONE_TRAINING | COSINE, "self_train")
    with pytest.raises(RunError, match="iterations: expected at most 2, got 3"):
        prepare(home, store, "a", "", 3, {}, "self_train")
    for name, settings in (("b", ONE_TRAINING), ("c", COSINE)):
        prepare(home, store, name, "micro", 2, settings, "self_train")
        assert prepare(home, store, name, "", 3, {}, "self_train").iterations == 3


@pytest.mark.parametrize(
    ("settings", "status", "kept"),
    [(ONE_TRAINING, "done", True), (ONE_TRAINING, "stopped", False), (ONE_TRAINING | COSINE, "done", False)],
)
def test_an_ended_run_keeps_its_optimiser_only_if_it_can_get_more_rounds(
    home: Home, store: Store, settings: dict[str, Any], status: RunStatus, kept: bool
) -> None:
    prepare(home, store, "a", "micro", 2, settings, "self_train")
    folders = [home.work / "a" / "2", home.optimisers / "a" / "solver" / "2", home.optimisers / "b" / "solver" / "1"]
    for folder in folders:
        folder.mkdir(parents=True)
    set_status(store, "a", status)
    clear(run_of(store, "a", home=home.path))
    assert [folder.exists() for folder in folders] == [False, kept, True]


JUDGE = {"audit.oracle": "judge", "audit.judge": KEYED["solver.signals.embedder"]}
GATE = {"type": "reordered", "paraphraser": KEYED["solver.signals.embedder"]}
REFUSED: list[tuple[tuple[str, str, int, dict[str, Any]], type[Exception], str]] = [
    (("a", "nosuch", 0, {}), RunError, "preset: 'nosuch': .* expected one of demo, .*rzero, "),
    (("a", "demo", -1, {}), RunError, "iterations: .* got -1"),
    (("a", "", 0, {}), StoreError, "run a"),
    (("a", "", 0, {"seed": 1}), RunError, "overrides: .*checkpoints, budget, rates and trackers"),
    (("../a", "demo", 0, {}), RunError, "name: "),
    (("a", "demo", 0, {"base_model": "nowhere"}), RunError, "base_model: .* got nowhere"),
    (("a", "demo", 0, {"evaluation.benchmark": "n.jsonl"}), RunError, r"evaluation\.benchmark: benchmark n\.jsonl"),
    (("a", "demo", 0, EASYR1 | {"solver.reward.type": "scrl"}), RunError, r"solver\.reward\.type: .*mean_entropy"),
    (("a", "demo", 0, EASYR1 | {"trainer.gpus_per_node": 7}), RunError, r"trainer\.gpus_per_node: "),
    (("a", "demo", 0, KEYED), RunError, "key_variable: NO_SUCH_KEY"),
    (("a", "demo", 0, JUDGE), RunError, "key_variable: NO_SUCH_KEY"),
    (("a", "demo", 0, {"dataset.gates": [GATE]}), RunError, r"dataset\.gates: .*NO_SUCH_KEY"),
]


@pytest.mark.parametrize(("arguments", "error", "named"), REFUSED)
def test_a_run_that_cannot_start_is_refused_and_not_stored(
    home: Home, store: Store, arguments: tuple[str, str, int, dict[str, Any]], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        prepare(home, store, *arguments)
    assert _names(store) == []


def test_easyr1_is_refused_for_rounds_that_are_one_training(home: Home, store: Store) -> None:
    settings = EASYR1 | {"trainer.gpus_per_node": 1, "solver.reward.kl_coefficient": 0.0}
    with pytest.raises(RunError, match=r"solver\.training\.optimiser: .* got 'continued'"):
        prepare(home, store, "a", "micro", 2, settings | ONE_TRAINING, "self_train")
    prepare(home, store, "b", "micro", 1, settings | ONE_TRAINING, "self_train")
    prepare(home, store, "c", "micro", 2, settings, "self_train")  # the preset's rounds are trainings of their own


def test_a_run_is_continued_only_if_it_could_start_now(home: Home, store: Store, tmp_path: Path) -> None:
    benchmark = tmp_path / "own.jsonl"
    benchmark.write_text(json.dumps({"id": "1", "problem": "What is 1 + 1?", "answer": "2"}))
    prepare(home, store, "a", "demo", 0, {"evaluation.benchmark": str(benchmark)})
    benchmark.unlink()
    with pytest.raises(RunError, match=r"evaluation\.benchmark: .*own\.jsonl"):
        prepare(home, store, "a", "", 9, {})
    with store.read() as session:
        assert queries.runs.get_run(session, "a").config["iterations"] == 3


def test_a_start_that_this_process_has_checked_is_not_checked_again(home: Home, store: Store, tmp_path: Path) -> None:
    """But a run that another process creates meanwhile keeps its settings."""
    benchmark = tmp_path / "own.jsonl"
    benchmark.write_text(json.dumps({"id": "1", "problem": "What is 1 + 1?", "answer": "2"}))
    settings = {"evaluation.benchmark": str(benchmark)}
    checked = check_startable(store, "a", "demo", 0, settings)
    benchmark.unlink()
    assert prepare(home, store, "a", "demo", 0, settings, checked=checked) == checked
    prepare(home, store, "b", "demo", 0, {"seed": 7})
    with pytest.raises(StoreError, match="run b: exists"):
        prepare(home, store, "b", "demo", 0, settings, checked=checked)


def test_an_iteration_can_begin_when_all_earlier_stages_are_done(home: Home, store: Store) -> None:
    config = prepare(home, store, "a", "demo", 2, {})
    for t, stage in plan(config):
        for later in range(t + 1, 3):
            with pytest.raises(RunError, match=f"iteration {later}: {stage} of iteration {t}"):
                check_start(run_of(store, "a"), later)
        if t:
            check_start(run_of(store, "a"), t)
        with store.write() as session:
            finish(session, "a", t, stage, {}, 1)
    check_start(run_of(store, "a"), 2)
    with pytest.raises(RunError, match=r"t: run a: .* got 3"):
        check_start(run_of(store, "a"), 3)


@pytest.mark.parametrize(
    ("action", "last", "ended"), [("ignore", 2, "done"), ("stop", 1, "stopped"), ("pause", 1, None)]
)
def test_how_a_run_has_ended_is_known_from_its_stages(
    home: Home, store: Store, action: str, last: int, ended: RunStatus | None
) -> None:
    """`last` is the last iteration with stages, which the checks of its health end, or pause, or not."""
    config = prepare(home, store, "a", "demo", 2, {})
    for t, stage in plan(config):
        if t <= last:
            assert ended_as(store, "a") is None
            with store.write() as session:
                finish(session, "a", t, stage, {"action": action} if stage == "check_health" else {}, 1)
    assert ended_as(store, "a") == ended


def test_a_service_s_key_is_required_only_if_the_method_needs_the_service(home: Home, store: Store) -> None:
    prepare(home, store, "a", "demo", 0, {**KEYED, "solver.reward.type": "rzero"})
    assert _names(store) == ["a"]


def test_labelled_data_that_are_all_held_out_are_refused(home: Home, store: Store, tmp_path: Path) -> None:
    file = tmp_path / "labelled.jsonl"
    item = load_benchmark("micro")[0]
    file.write_text(json.dumps({"problem": item.problem, "answer": item.answer}))
    with pytest.raises(RunError, match=r"labelled\.jsonl: .*held out"):
        prepare(home, store, "a", "demo", 0, {"labelled.file": str(file)})
    assert _names(store) == []


def test_an_untrained_challenger_s_stage_does_not_wait_for_other_trainings(home: Home, store: Store) -> None:
    prepare(home, store, "a", "demo", 0, {"challenger.trained": False})
    with exclusive_use(home, "another run"):
        last_write = train_challenger(context_of(store, "a", 1, home=home.path))
    with store.write() as session:
        assert last_write(session) == {"checkpoint": "a/base/0", "trained": False}


def demo_with(**overrides: object) -> RunConfig:
    return load_config(PRESETS / "demo.toml", overrides)


def test_an_api_on_the_runner_s_machine_checks_files_too(home: Home) -> None:
    """The same `coevo up` started both, so the API finds its own process in services.json."""
    me = os.getpid()
    home.save_services(Services("", "", "", "", "", {me: ("api", processes.started(me))}))
    refuse_as_the_api_can(demo_with(), new=True)
    with pytest.raises(UnreadyError, match=r"evaluation\.benchmark: "):
        refuse_as_the_api_can(demo_with(**{"evaluation.benchmark": "none.jsonl"}), new=True)


def test_a_benchmark_of_a_suite_that_cannot_be_had_is_named_before_a_run_starts(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The presets name benchmarks whose questions coevo does not ship."""
    evaluation = load_config(PRESETS / "rzero.toml").evaluation
    folder = home.path / "benchmarks"
    folder.mkdir()
    (folder / "math500.jsonl").write_text('{"problem": "1 + 1?", "answer": 2}')
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    config = demo_with(**{"evaluation.benchmark": evaluation.benchmark, "evaluation.suite": evaluation.suite})
    with pytest.raises(UnreadyError, match=rf"evaluation\.suite: benchmark amc23.* {folder}/amc23"):
        refuse_unready(config, new=True)


def test_a_layer_that_the_base_model_lacks_is_refused_before_the_start(home: Home) -> None:
    config = demo_with(**{"trainer.lora.rank": 2, "trainer.lora.targets": ["q_proj"]})
    refuse_unready(config, new=True)
    config = demo_with(**{"trainer.lora.rank": 2, "trainer.lora.targets": ["qkv_proj"]})
    with pytest.raises(UnreadyError, match=r"trainer\.lora\.targets: .*qkv_proj"):
        refuse_unready(config, new=True)


@pytest.mark.parametrize("up", [True, False])
def test_an_api_on_another_machine_checks_settings_only(home: Home, up: bool) -> None:
    if up:  # another process started the services, not the one that started this API
        home.save_services(Services("", "", "", "", "", {2**22 + 1: ("api", 1.0)}))
    refuse_as_the_api_can(demo_with(**{"evaluation.benchmark": "none.jsonl", "base_model": "none"}), new=True)
    with pytest.raises(UnreadyError, match=r"EasyR1 divides .* evenly"):
        refuse_as_the_api_can(demo_with(**{"trainer.type": "easyr1", "trainer.gpus_per_node": 7}), new=True)
