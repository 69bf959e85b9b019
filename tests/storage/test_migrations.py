"""Migrations keep the rows of a database that an earlier version of coevo made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from old_databases import as_stored_by_0010, database_of_version, insert, insert_run
from store_examples import training_rollout

from core.settings.config import CoEvolution, RunConfig, SelfTraining
from core.settings.parsing import load_config, parse_config
from core.types import Evaluated, question_id
from storage import queries
from storage.queries.training_rollouts import Training
from storage.rows import RunOrigin
from storage.session import open_store

RUNS = Path(__file__).parents[2] / "deploy" / "runs"


def upgraded_config(database_url: str, revision: str, stored: dict[str, Any]) -> RunConfig:
    """The configuration of a run that an earlier version stored, as this version reads it after the migrations."""
    with database_of_version(database_url, revision) as connection:
        insert_run(connection, stored)
    upgraded = open_store(database_url, create=True)
    with upgraded.read() as session:
        config = parse_config(queries.runs.get_run(session, "old").config, "stored")
    upgraded.close()
    return config


@pytest.mark.parametrize(("preset", "kind"), [("demo", CoEvolution), ("micro", SelfTraining)])
def test_0011_a_stored_configuration_becomes_one_of_its_kind_of_run(database_url: str, preset: str, kind: type) -> None:
    config = load_config(RUNS / f"{preset}.toml", {"seed": 7, "guard.decline": "stop"})
    assert isinstance(config, kind)
    assert upgraded_config(database_url, "0010", as_stored_by_0010(config)) == config


def test_0012_an_audit_sample_keeps_its_order(database_url: str) -> None:
    with database_of_version(database_url, "0011") as connection:
        insert_run(connection, CoEvolution().model_dump(mode="json"))
        for index in range(3):
            key, iteration_key = question_id("old", 1, index), {"run": "old", "iteration": 1}
            insert(connection, "questions", id=key, **iteration_key, index=index, raw="2 + 2?", seed=index)
            sample = {"oracle": "human", "stratum": "kept 0.4-0.6", "place": 2 - index}
            insert(connection, "audit_samples", question_id=key, **iteration_key, **sample)
    upgraded = open_store(database_url, create=True)
    with upgraded.read() as session:
        samples = queries.audits.samples_of(session, "old", 1, "human")
    upgraded.close()
    assert [(row.question_id, row.position) for row in samples] == [
        (question_id("old", 1, index), 2 - index) for index in (2, 1, 0)
    ]


def test_0013_the_results_of_evaluations_stay(database_url: str) -> None:
    with database_of_version(database_url, "0012") as connection:
        insert_run(connection, CoEvolution().model_dump(mode="json"))
        checkpoint = {"run": "old", "role": "base", "iteration": 0, "step": 0, "path": "/m", "sha256": "0" * 64}
        insert(connection, "checkpoints", id="old/base/0", **checkpoint, parent=None, manifest={})
        counts = {"samples": 8, "correct": 3, "greedy_correct": True, "majority_correct": False}
        for benchmark, item in (("micro", "a"), ("micro", "b"), ("questions/1/exact", "old/1/000000")):
            key = {"checkpoint_id": "old/base/0", "benchmark": benchmark, "item_id": item}
            insert(connection, "evaluations", **key, level="2", **counts)
    upgraded = open_store(database_url, create=True)
    with upgraded.read() as session:
        results = queries.evaluations.evaluations_of(session, "old/base/0", "micro")
        pairs = queries.evaluations.evaluated(session, "old")
    upgraded.close()
    assert results == [Evaluated(item, "2", 8, 3, True, False) for item in ("a", "b")]
    assert pairs == [("old/base/0", "micro"), ("old/base/0", "questions/1/exact")]


@pytest.mark.parametrize("preset", ["demo", "micro"])
def test_0017_a_stored_run_still_expects_an_answer_after_the_question(database_url: str, preset: str) -> None:
    config = load_config(RUNS / f"{preset}.toml")
    stored = config.model_dump(mode="json")
    if isinstance(config, CoEvolution):
        assert stored["challenger"]["reward"].pop("format") == "tags_and_answer"
    assert upgraded_config(database_url, "0016", stored) == config


@pytest.mark.parametrize(("trainer", "betas"), [("local", (0.9, 0.99)), ("easyr1", (0.9, 0.999))])
def test_0018_a_run_keeps_the_betas_that_its_trainer_had(
    database_url: str, trainer: str, betas: tuple[float, float]
) -> None:
    settings = {"trainer": {"type": trainer}, "labelled": {"file": "micro", "limit": 9}}
    stored = parse_config(settings, "a test").model_dump(mode="json")
    for table in ("challenger", "solver", "labelled"):
        del stored[table]["training"]["betas"]
    config = upgraded_config(database_url, "0017", stored)
    assert [planned.training.betas for planned in config.trainings] == [betas] * 3


def test_0019_a_loop_still_goes_on_from_the_training_on_labelled_data(database_url: str) -> None:
    stored = parse_config({"labelled": {"file": "micro", "limit": 9}}, "a test").model_dump(mode="json")
    assert stored["labelled"].pop("chained") is False
    config = upgraded_config(database_url, "0018", stored)
    assert isinstance(config, CoEvolution)
    assert config.labelled is not None
    assert config.labelled.chained


def test_0020_a_run_has_no_tags_and_no_recorded_origin(database_url: str) -> None:
    with database_of_version(database_url, "0019") as connection:
        insert_run(connection, CoEvolution().model_dump(mode="json"))
    upgraded = open_store(database_url, create=True)
    with upgraded.write() as session:
        run = queries.runs.get_run(session, "old")
        assert queries.runs.origin_of(session, "old") == RunOrigin(None, None)
        tagged = queries.run_notes.annotate(session, "old", add=["new"])
    upgraded.close()
    assert (run.tags, run.note, run.noted_by, run.noted_at) == ([], "", None, None)
    assert tagged.tags == ["new"]


def test_0021_rollouts_of_trainings_can_be_added_to_an_earlier_run(database_url: str) -> None:
    with database_of_version(database_url, "0020") as connection:
        insert_run(connection, CoEvolution().model_dump(mode="json", exclude={"rollout_prompts"}))
    upgraded, training = open_store(database_url, create=True), Training("old", 1, "challenger")
    with upgraded.write() as session:
        assert parse_config(queries.runs.get_run(session, "old").config, "stored") == CoEvolution()
        assert queries.training_rollouts.list_rollouts(session, training) == []
        queries.training_rollouts.add(session, training, [training_rollout(answer=None, agrees=None)])
        assert queries.training_rollouts.list_rollouts(session, training) == [
            training_rollout(answer=None, agrees=None)
        ]
    upgraded.close()


def test_0022_the_files_of_earlier_checkpoints_are_there(database_url: str) -> None:
    with database_of_version(database_url, "0021") as connection:
        insert_run(connection, CoEvolution().model_dump(mode="json", exclude={"checkpoints"}))
        names = {"id": "old/base/0", "run": "old", "role": "base", "path": "/m", "sha256": "0"}
        insert(connection, "checkpoints", **names, iteration=0, step=0, manifest={}, parent=None)
    upgraded = open_store(database_url, create=True)
    with upgraded.write() as session:
        assert parse_config(queries.runs.get_run(session, "old").config, "stored") == CoEvolution()
        assert not queries.checkpoints.get_checkpoint(session, "old/base/0").files_removed
        queries.checkpoints.note_removed(session, ["old/base/0"])
        assert queries.checkpoints.get_checkpoint(session, "old/base/0").files_removed
    upgraded.close()


def test_0014_a_run_on_given_prompts_goes_on_with_a_new_optimiser_in_each_round(database_url: str) -> None:
    settings = {"prompts": {"file": "micro", "limit": 9}, "solver": {"reward": {"type": "srt"}}}
    stored = parse_config(settings, "a test").model_dump(mode="json")
    for name in ("betas", "optimiser"):
        del stored["solver"]["training"][name]
    config = upgraded_config(database_url, "0013", stored)
    assert isinstance(config, SelfTraining)
    assert not config.rounds_are_one_training
    assert config.solver.training.betas == (0.9, 0.99)
