from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from core.methods.evol_rl import EvolRl
from core.settings.complaints import setting_names
from core.settings.config import CoEvolution, RunConfig, SelfTraining
from core.settings.parsing import ConfigError, load_config, parse_config
from core.statistics.alerts import RULES
from core.statistics.guard import Signal
from core.validation.faults import Fault, listed
from core.validation.suggestions import no_such

RUNS = Path(__file__).parents[2] / "deploy" / "runs"


def refused(read: Callable[[], object]) -> list[Fault]:
    """The faults of the `ConfigError` that is raised. The sentences are in tests/messages.txt."""
    with pytest.raises(ConfigError) as error:
        read()
    return list(error.value.faults)


def test_the_defaults_are_the_paper_s() -> None:
    """The values are from the text of R-Zero's sections 2.2, 2.3, 3.1 and E.1."""
    config = CoEvolution()
    for role, rollouts, steps in ((config.challenger, 4, 5), (config.solver, 5, 15)):
        training, objective = role.training, role.reward
        assert (training.prompts_per_step, role.rollouts, training.steps) == (128, rollouts, steps)
        assert (training.learning_rate, training.weight_decay, objective.kl_coefficient) == (1e-6, 1e-2, 1e-2)
        assert (objective.advantage, objective.kl_in, objective.loss_average) == ("zscore", "loss", "sequence")  # A.1
        assert (training.sampling.temperature, training.sampling.top_p, training.sampling.top_k) == (1.0, 0.99, None)
    assert (config.dataset.sampling.top_k, config.challenger.reward.format) == (None, "tags")
    reward = config.challenger.reward
    assert (reward.variant, reward.votes, reward.repetition_weight, reward.bleu_distance) == ("paper", 10, 1.0, 0.5)
    assert (config.dataset.candidates, config.dataset.votes, config.dataset.limits) == (8000, 10, (0.25, 0.75))


def test_the_paper_s_preset_changes_no_hyperparameter() -> None:
    preset, paper = load_config(RUNS / "rzero.toml"), CoEvolution()
    assert preset.dataset == paper.dataset
    for ours, theirs in ((preset.challenger, paper.challenger), (preset.solver, paper.solver)):
        assert ours.reward == theirs.reward
        assert ours.training.model_copy(update={"micro_batch": theirs.training.micro_batch}) == theirs.training


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("9" * 5_000, id="an integer that Python cannot hold"),
        pytest.param("[" * 5_000, id="deeper than Python can follow"),
    ],
)
def test_a_preset_that_python_cannot_hold_is_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "bad.toml").write_text(f"seed = {value}\n")
    assert refused(lambda: load_config(tmp_path / "bad.toml")) == []


def test_a_preset_that_is_no_text_or_no_file_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes("# für\n".encode("latin-1"))
    for path in (tmp_path / "latin.toml", tmp_path):
        with pytest.raises(ConfigError, match=re.escape(str(path))):
            load_config(path)


def test_every_number_has_bounds() -> None:
    """Every number has a minimum and a maximum, so that no setting is infinite or more than any machine could do."""
    schemas = {kind.__name__: kind.model_json_schema() for kind in get_args(RunConfig)}
    parts = {name: part for schema in schemas.values() for name, part in schema["$defs"].items()}
    numbers = list(_numbers({**schemas, **parts}))
    assert len(numbers) > 60
    for name, number in numbers:
        assert {"minimum", "exclusiveMinimum"} & number.keys(), name
        assert {"maximum", "exclusiveMaximum"} & number.keys(), name


def _numbers(parts: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for part, schema in parts.items():
        for name, setting in schema.get("properties", {}).items():
            for kind in (setting, setting.get("items", {}), *setting.get("anyOf", ()), *setting.get("prefixItems", ())):
                if kind.get("type") in ("integer", "number"):
                    yield f"{part}.{name}", kind


def test_the_error_lists_a_limited_number_of_complaints() -> None:
    with pytest.raises(ConfigError) as error:
        parse_config({**{f"k{i}": 1 for i in range(1_000)}, "seed": "x" * 1_000_000, "y" * 1_000_000: 1}, "a test")
    assert "982" in str(error.value)
    assert len(str(error.value)) < 5_000


def test_an_overridden_method_has_its_own_defaults_and_not_the_preset_s_settings() -> None:
    """The demo sets R-Zero's KL and loss average for the tiny world; EVOL-RL keeps those of its paper."""
    path = RUNS / "demo.toml"
    swapped = load_config(path, {"solver.reward.type": "evol_rl", "solver.reward.alpha": 0.25}).solver
    assert swapped.reward == EvolRl(alpha=0.25)
    assert swapped.rollouts == 8  # the number of rollouts is still the preset's
    assert load_config(path, {"solver.reward.alpha": 0.25, "solver.reward.type": "evol_rl"}).solver == swapped
    same = load_config(path, {"solver.reward.type": "rzero"}).solver.reward
    assert same.loss_average == "token"


@pytest.mark.parametrize(
    ("preset", "optimiser", "steps"),
    [
        ("micro", {"solver.training.optimiser": "continued"}, 60),  # six rounds of ten steps
        ("micro", {"solver.training.optimiser": "fresh"}, 10),
        ("demo", {}, 24),
    ],
)
def test_a_warm_up_ends_before_its_training(preset: str, optimiser: dict[str, str], steps: int) -> None:
    name, path = "solver.training.warmup_steps", RUNS / f"{preset}.toml"
    load_config(path, {name: steps - 1, **optimiser})
    assert [fault.setting for fault in refused(lambda: load_config(path, {name: steps, **optimiser}))] == [name]


def test_labelled_data_is_trained_on_with_the_solver_s_numbers() -> None:
    labelled = {"labelled.file": "micro", "labelled.limit": 9}
    path = RUNS / "demo.toml"
    *_, solver, branch = load_config(path, labelled).trainings
    assert (branch.table, branch.training, branch.rollouts) == ("labelled", solver.training, solver.rollouts)
    loss = ("clip_low", "clip_high", "entropy_coefficient", "kl_coefficient", "kl_in", "loss_average")
    assert {name: getattr(branch.objective, name) for name in loss} == {
        name: getattr(solver.objective, name) for name in loss
    }
    fewer = load_config(path, {**labelled, "labelled.steps": 3, "solver.training.warmup_steps": 2}).trainings[-1]
    assert fewer.training == solver.training.model_copy(update={"steps": 3, "warmup_steps": 2})


def test_the_guard_s_other_signals_warn_and_alerts_have_the_rules_of_their_figures() -> None:
    config = load_config(RUNS / "demo.toml", {"guard.actions.decline": "pause", "alerts.figures": ["p_hat"]})
    assert {signal: config.guard.action(signal) for signal in get_args(Signal)} == {
        signal: "pause" if signal == "decline" else "warn" for signal in get_args(Signal)
    }
    assert config.alerts.rules == {"p_hat": RULES["p_hat"]}


def test_rounds_on_given_prompts_are_one_training_by_default() -> None:
    solver = {"reward": {"type": "srt"}, "training": {"steps": 5}}
    config = parse_config({"prompts": {"file": "micro", "limit": 9}, "solver": solver, "iterations": 4}, "a test")
    assert isinstance(config, SelfTraining)
    assert config.rounds_are_one_training
    assert config.solver_steps == 20


def test_the_names_are_those_of_every_setting_of_a_stored_run() -> None:
    assert {CoEvolution, SelfTraining} == {*get_args(RunConfig)}
    for kind, preset in ((CoEvolution, "demo"), (SelfTraining, "micro")):
        names = setting_names(kind)
        assert {*_dotted(load_config(RUNS / f"{preset}.toml").model_dump())} <= {*names}
        assert "solver.reward.alpha" in names  # of EVOL-RL, which neither of these presets runs


def _dotted(tree: dict[str, Any], above: str = "") -> list[str]:
    names = []
    for name, value in tree.items():
        names += [f"{above}{name}", *(_dotted(value, f"{above}{name}.") if isinstance(value, dict) else [])]
    return names


def test_faults_of_the_file_and_of_overrides_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[dataset]\nvotez = 3\n")
    assert {fault.setting: fault.source for fault in refused(lambda: load_config(file, {"seed": -1}))} == {
        "dataset.votez": None,
        "seed": "overrides seed=-1",
    }


def test_a_fault_is_called_by_the_setting_that_its_sentence_begins_with() -> None:
    text = "expected 1 or more, or 0 for what the preset says, got -1; leave it out"
    assert str(Fault.of("iterations", text)) == f"iterations: {text}"
    assert Fault.of("dataset", "band: expected x, got y").setting == "dataset.band"
    assert str(Fault("a", "y", "x", "leave it out")) == "a: expected x, got y; leave it out"
    assert listed([Fault("a", "b"), Fault("c", "d")]) == "2 faults:\n  a: b\n  c: d"


def test_an_unknown_name_is_answered_with_the_nearest_and_all_known_ones() -> None:
    assert no_such("suite", ["srt", "scrl"], "sRT") == "no such suite (did you mean srt?); expected one of srt, scrl"
    assert no_such("suite", [], "x") == "no such suite; expected one of none"
