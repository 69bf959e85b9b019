"""`coevo backup` and `coevo restore`: what comes back, in another home and on another database."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from typer.testing import CliRunner

from core.faultpoints import FaultPoint, arm
from core.types import Stage
from orchestrator.cli import app
from orchestrator.disk import backup
from orchestrator.disk.backup import back_up
from orchestrator.disk.restore import restore
from orchestrator.installation.home import Home
from orchestrator.verification.run import verify_run
from storage import queries
from storage.archive import ArchiveWriter
from storage.models import Runs, Stages
from storage.session import Store
from storage.texts import texts_path
from tests.chaos.contents import differences
from tests.disk_files import create_run
from tests.orchestrator.archives import add_evaluation, add_everything, contents, files, new_home, rows, violations
from tests.orchestrator.stored_runs import RUN, copy_of, go_on


@pytest.fixture
def original(loop_home: Home, tmp_path: Path) -> tuple[Home, Store]:
    return copy_of(loop_home, tmp_path / "original")


@pytest.mark.parametrize("kind", ["loop", "rounds"])
def test_a_run_comes_back_from_sqlite_through_another_database(
    kind: str, store: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    home, source = copy_of(request.getfixturevalue(f"{kind}_home"), tmp_path / "original")
    back_up(home, source, tmp_path / "first.zip")
    between, last = (Home(tmp_path / "between"), store), new_home(tmp_path / "last")
    restore(*between, tmp_path / "first.zip")
    back_up(*between, tmp_path / "second.zip", [RUN])
    restore(*last, tmp_path / "second.zip")
    for restored in (between, last):
        assert differences(contents(home, source, RUN), contents(*restored, RUN)) == []
        assert violations(*restored, RUN) == []
        assert rows(*restored) == rows(home, source)


def test_everything_comes_back_as_it_was_on_each_database(
    original: tuple[Home, Store], store: Store, tmp_path: Path
) -> None:
    add_everything(*original)
    made = back_up(*original, tmp_path / "all.zip")
    between, last = (Home(tmp_path / "between"), store), new_home(tmp_path / "last")
    restored = restore(*between, tmp_path / "all.zip")
    back_up(*between, tmp_path / "again.zip")
    restore(*last, tmp_path / "again.zip")
    assert rows(*original) == rows(*between) == rows(*last)
    assert all(rows(*original).values()), "a table without a row is not tried"
    assert files(original[0]) == files(between[0]) == files(last[0])
    assert [*made.runs] == [*restored.runs]
    assert (len(made.runs), restored.evaluations, made.files) == (3, 1, restored.files)


def test_one_run_of_several_is_written_or_restored_alone(original: tuple[Home, Store], tmp_path: Path) -> None:
    add_everything(*original)
    back_up(*original, tmp_path / "all.zip")
    back_up(*original, tmp_path / "one.zip", ["synthetic"])
    expected = contents(*original, "synthetic")
    for source in ("all.zip", "one.zip"):
        home, restored = new_home(tmp_path / f"from-{source}")
        assert [*restore(home, restored, tmp_path / source, ["synthetic"]).runs] == ["synthetic"]
        assert differences(expected, contents(home, restored, "synthetic")) == []
        with restored.read() as session:
            assert [run.name for run in queries.runs.list_runs(session)] == ["synthetic"]
            assert queries.archived.evaluations_of(session, None) == []
            assert len(queries.archived.evaluations_of(session, "synthetic")) == 5  # the last one is not the run's own


def test_runs_are_restored_beside_others_with_the_same_benchmark(
    original: tuple[Home, Store], store: Store, tmp_path: Path
) -> None:
    back_up(*original, tmp_path / "run.zip")
    home = Home(tmp_path / "other")
    add_everything(home, store)
    before = rows(home, store)
    add_evaluation(*original, "whole/solver/1", "whole/solver/1")
    back_up(*original, tmp_path / "evaluated.zip", [RUN])
    restore(home, store, tmp_path / "evaluated.zip")
    after = rows(home, store)
    assert all({*rows} <= {*after[table]} for table, rows in before.items())
    assert differences(contents(*original, RUN), contents(home, store, RUN)) == []


def test_a_run_whose_name_is_that_of_a_folder_of_an_archive(tmp_path: Path) -> None:
    home, store = new_home(tmp_path / "old")
    create_run(store, home, "checkpoints")
    with store.write() as session:
        queries.checkpoints.note_removed(session, ["checkpoints/base/0"])
    back_up(home, store, tmp_path / "run.zip")
    assert [*restore(*new_home(tmp_path / "new"), tmp_path / "run.zip").runs] == ["checkpoints"]


class _Killed(BaseException):
    """Not an Exception, so that it is not recorded as the failure of a stage."""


def _interrupted(store: Store, home: Home, stage: str) -> None:
    """Go on until a batch of a stage of iteration 2 is stored, and stop there as if the process was killed."""

    def kill(name: FaultPoint, unit: str) -> None:
        if name == "batch stored" and unit.startswith(f"2/{stage}/"):
            raise _Killed

    arm(kill)
    try:
        go_on(store, home)
    except _Killed:
        return
    finally:
        arm(None)
    raise AssertionError(f"{stage} stored no batch")


@pytest.mark.parametrize("stage", ["generate_questions", "label_questions", "evaluate"])
def test_a_run_that_is_not_finished_goes_on_in_its_new_home(
    stage: Stage, original: tuple[Home, Store], store: Store, tmp_path: Path
) -> None:
    home, source = original
    expected = contents(home, source, RUN)
    _back_to_iteration_1(home, source)
    _interrupted(source, home, stage)
    made = back_up(home, source, tmp_path / "run.zip")
    assert made.unfinished == [f"{RUN}/2/{stage}"]
    new = Home(tmp_path / "new")
    restore(new, store, tmp_path / "run.zip")
    assert violations(new, store, RUN) == []
    with store.read() as session:
        row = queries.ledger.find_stage(session, run=RUN, iteration=2, stage=stage)
        assert row is not None
        assert row.lease_expires <= queries.tables.database_time(session), "the lease was taken along"
    assert verify_run(new, store, RUN, quick=True).left_out == [f"{stage} of iteration 2 is running"]
    go_on(store, new)
    assert differences(expected, contents(new, store, RUN)) == []
    assert violations(new, store, RUN) == []


def _back_to_iteration_1(home: Home, store: Store) -> None:
    """Remove all that iteration 2 has stored."""
    with store.write() as session:
        for table, condition in {
            "pseudo_labels": "iteration = 2",
            "rollouts": "question_id LIKE 'whole/2/%'",
            "trained_on": "question_id LIKE 'whole/2/%' OR checkpoint LIKE 'whole/%/2'",
            "questions": "iteration = 2",
            "evaluations": "checkpoint_id LIKE 'whole/%/2'",
            "checkpoints": "iteration = 2",
            **dict.fromkeys(
                ("stages", "series", "filter_stats", "train_metrics", "training_rollouts", "usage", "alerts"),
                "iteration = 2",
            ),
        }.items():
            session.connection().exec_driver_sql(f"DELETE FROM {table} WHERE {condition}")
        session.connection().exec_driver_sql("UPDATE runs SET status = 'running'")
    for folder in (home.texts / RUN / "2", *home.checkpoints.glob(f"{RUN}/*/2")):
        shutil.rmtree(folder)


def test_a_run_goes_on_and_removes_files_while_it_is_read(
    original: tuple[Home, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, source = original
    expected, expected_files = contents(*original, RUN), files(home)
    real = ArchiveWriter.add_rows

    def then_the_run_goes_on(writer: ArchiveWriter, *arguments: Any) -> int:
        if (home.checkpoints / RUN / "solver" / "1").exists():
            shutil.rmtree(home.checkpoints / RUN / "solver" / "1")
            with source.write() as session:  # it would wait for half a minute for a reader of the same file
                queries.checkpoints.note_removed(session, [f"{RUN}/solver/1"])
        return real(writer, *arguments)

    monkeypatch.setattr(ArchiveWriter, "add_rows", then_the_run_goes_on)
    back_up(home, source, tmp_path / "run.zip")
    new = new_home(tmp_path / "new")
    restore(*new, tmp_path / "run.zip")
    assert differences(expected, contents(*new, RUN)) == []
    assert files(new[0]) == expected_files
    assert [path.name for path in home.work.iterdir()] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "original", "run.zip"]


def test_a_stage_that_ends_between_the_rows_and_its_files_is_read_again(
    original: tuple[Home, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At first the stage has a part of its texts. Then the stage ends, and the part becomes the whole file."""
    home, source = original
    merged = texts_path(home.texts, RUN, 2, "label_questions")
    part = merged.with_suffix(".parts") / "00000000.parquet"
    part.parent.mkdir()
    merged.rename(part)
    _set_status(source, "running")
    real = backup.files_of

    def then_the_stage_ends(*arguments: Any) -> Iterator[Any]:
        if part.exists():
            part.rename(merged)
            part.parent.rmdir()
            _set_status(source, "done")
        return real(*arguments)

    monkeypatch.setattr(backup, "files_of", then_the_stage_ends)
    assert back_up(home, source, tmp_path / "run.zip").unfinished == []
    new = new_home(tmp_path / "new")
    restore(*new, tmp_path / "run.zip")
    assert violations(*new, RUN) == []


def _set_status(store: Store, status: str) -> None:
    key = (Stages.run == RUN, Stages.iteration == 2, Stages.stage == "label_questions")
    with store.write() as session:
        session.execute(update(Stages).where(*key).values(status=status))


@pytest.mark.parametrize("trusted", [False, True])
def test_what_a_restored_run_names_is_listed_and_must_be_accepted(
    trusted: bool, original: tuple[Home, Store], tmp_path: Path
) -> None:
    home, source = original
    with source.read() as session:
        config = {**queries.runs.get_run(session, RUN).config}
    judge = {"url": "http://127.0.0.1:9/v1", "model": "m", "key_variable": "A_KEY"}
    program = {"file": "/bin/a program", "timeout": 1.0}
    config["audit"] = {**config["audit"], "oracle": "judge", "judge": judge, "program": program}
    config |= {"base_model": "folder", "serving": {**config["serving"], "applications": "serve.yaml"}}
    with source.write() as session:
        session.execute(update(Runs).values(config=config, unconfirmed=False))
    back_up(home, source, tmp_path / "run.zip")
    new, store = new_home(tmp_path / "new")
    named = restore(new, store, tmp_path / "run.zip", dry_run=True).named[RUN]
    assert restore(new, store, tmp_path / "run.zip", trusted=trusted).named[RUN] == named
    assert named.items() >= {
        ("config.audit.judge.url", "http://127.0.0.1:9/v1"),
        ("config.audit.judge.key_variable", "A_KEY"),
        ("config.audit.program.file", "/bin/a program"),
        ("config.base_model", "folder"),
        ("config.serving.applications", "serve.yaml"),
    }
    with store.write() as session:
        assert queries.runs.confirm(session, RUN) is not trusted


def test_the_commands(original: tuple[Home, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def coevo(home: Home, *arguments: str, code: int = 0) -> str:
        monkeypatch.setenv("COEVO_HOME", str(home.path))
        monkeypatch.delenv("COEVO_DATABASE", raising=False)
        monkeypatch.chdir(tmp_path)
        result = CliRunner().invoke(app, [*arguments])
        assert result.exit_code == code, result.output
        return result.output

    home, _ = original
    made = json.loads(coevo(home, "backup", "run.zip", RUN, "--json"))
    assert made["archive"] == str(tmp_path / "run.zip")
    assert made["bytes"] == (tmp_path / "run.zip").stat().st_size
    assert made["runs"][RUN]["pseudo_labels"] == 16
    assert "exists already" in coevo(home, "backup", "run.zip", code=1)
    assert "no such run; the store has whole" in coevo(home, "backup", "other.zip", "nosuch", code=1)
    new, _ = new_home(tmp_path / "new")
    checked = json.loads(coevo(new, "restore", "run.zip", "--dry-run", "--json"))
    assert (checked["restored"], checked["runs"]) == (False, made["runs"])
    assert files(new) == {}
    assert "can be restored: 1 runs" in coevo(new, "restore", "run.zip", "--dry-run")
    restored = coevo(new, "restore", "run.zip")
    assert f"run {RUN}: rows: " in restored
    assert f"run {RUN}: its settings name: config.evaluation.benchmark = " in restored
    assert "the store has runs of these names already: whole" in coevo(new, "restore", "run.zip", code=1)
    coevo(new, "verify", RUN)
