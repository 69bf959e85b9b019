"""`coevo runs delete`: rows and files go together, references and work refuse it, and it can be repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from core.types import Evaluated
from orchestrator.disk import deletion
from orchestrator.disk.files import DiskError, files_of_run
from orchestrator.installation.home import Home
from orchestrator.ledger import owner
from services.prefect.client import Prefect
from services.prefect.server import PrefectServer
from storage import queries
from storage.errors import NotThere, RunHeld
from storage.files.texts import evaluation_path
from storage.models import Base
from storage.session import Store
from tests.commands import coevo, json_of, refusal
from tests.disk_files import create_run, write
from tests.storage.store_examples import checkpoint, fill
from tests.stored_evaluations import store_answers_of
from tests.synthetic_run import add_evaluations


def create(store: Store, home: Home, run: str) -> None:
    """A run with a row in every table and files of every kind; no process works on it."""
    create_run(store, home, run)
    with store.write() as session:
        fill(session, run)
        queries.run_leases.release_run(session, run=run, owner="me")
        evaluations = queries.run_rows.evaluation_ids(session, run)
    for path in (
        home.checkpoints / run / "solver/1/model.safetensors",
        home.checkpoints / f".tmp-{run}-solver-2-abcdefgh" / "model.safetensors",
        home.optimisers / run / "solver/1/moments.safetensors",
        home.texts / run / "1/label_questions.parquet",
        home.work / run / "2/train_solver/step_5/state.json",
        home.exports / run / f"1/{run}-1-all-0123456789ab.csv",
        home.trackers / run / "tensorboard/events.out.tfevents.1.host.2.0",
        home.run_logs / f"{run}.log",
        home.run_logs / f"{run}.log.2",
        *(evaluation_path(home.texts, key) for key in evaluations),
    ):
        write(path)


def files(home: Home) -> set[str]:
    names = {path.relative_to(home.path).as_posix() for path in home.path.rglob("*") if path.is_file()}
    return {name for name in names if not name.startswith("coevo.db")}


def counts(store: Store) -> dict[str, int]:
    with store.read() as session:
        tables = Base.metadata.sorted_tables
        return {table.name: session.scalar(select(func.count()).select_from(table)) or 0 for table in tables}


def test_a_deleted_run_leaves_neither_rows_nor_files_and_others_stay(sqlite: Store, home: Home) -> None:
    create(sqlite, home, "demo-b")
    rows, left = counts(sqlite), files(home)
    create(sqlite, home, "demo")
    write(home.reports / "demo.html")
    for number, runs in enumerate((["demo-b", "demo"], ["demo-b"])):
        write(home.exports / f"_runs/{number}.csv")
        manifest = home.exports / f"_runs/{number}.csv.manifest.json"
        manifest.write_text(json.dumps({"runs": [{"run": run} for run in runs]}))
    shown = json_of("runs", "delete", "demo", "--dry-run", "--evaluations")
    assert (counts(sqlite)["runs"], shown[0]["deleted"]) == (2, False)
    before = counts(sqlite)
    [deleted] = json_of("runs", "delete", "demo", "--yes", "--evaluations")
    gone = {table: count - counts(sqlite)[table] for table, count in before.items()}
    assert deleted["rows"] == {table: count for table, count in gone.items() if count} == shown[0]["rows"]
    assert counts(sqlite) == rows
    of_others = {"reports/demo.html", "exports/_runs/1.csv", "exports/_runs/1.csv.manifest.json"}
    assert files(home) == {*left, *of_others}
    assert deleted["elsewhere"] == ["/models/demo/solver/1"]  # which `fill` names
    assert deleted["bytes"] == sum(entry["bytes"] for entry in deleted["files"]) > 0


def test_without_a_terminal_nothing_is_deleted_unless_yes_is_given(sqlite: Store, home: Home) -> None:
    create(sqlite, home, "demo")
    rows, left = counts(sqlite), files(home)
    assert "expected --yes" in refusal("runs", "delete", "demo", "--evaluations")
    assert (counts(sqlite), files(home)) == (rows, left)
    printed = coevo("runs", "delete", "demo", "--evaluations", "--dry-run").output
    assert "rollouts 6" in printed
    assert str(home.work / "demo") in printed


def test_a_run_that_a_process_works_on_is_refused(sqlite: Store, home: Home) -> None:
    create(sqlite, home, "demo")
    with sqlite.write() as session:
        queries.run_leases.claim_run(session, run="demo", owner="elsewhere:42:7", lease_seconds=60)
    rows, left = counts(sqlite), files(home)
    assert "process 42 on elsewhere works on it" in refusal("runs", "delete", "demo", "--yes", "--evaluations")
    with pytest.raises(RunHeld):  # also if it began after the first look
        deletion.delete(home, sqlite, "demo", evaluations=True)
    assert (counts(sqlite), files(home)) == (rows, left)


def test_a_run_is_refused_whose_checkpoints_another_run_or_an_evaluation_refers_to(sqlite: Store, home: Home) -> None:
    for run in ("old", "new", "other"):
        create_run(sqlite, home, run)
    with sqlite.write() as session:
        queries.checkpoints.add_checkpoint(session, checkpoint("new", "solver", 1, parent="old/base/0"), {})
        add_evaluations(session, checkpoint="other/base/0", benchmark="own", items=[])
        row = queries.evaluations.begin_evaluation(
            session, model="other/base/0", benchmark="micro", manifest={}, run="new", checkpoint="other/base/0"
        )
        queries.evaluations.add_results(session, row.id, [Evaluated("item", None, 1, 1, True, True)])
    for run in ("old", "other"):
        with pytest.raises(DiskError, match=f"run {run}: .* by new"):
            deletion.delete(home, sqlite, run, evaluations=True)
    key = store_answers_of(sqlite, "new/solver/1", "micro", ["RR"], checkpoint="new/solver/1")
    write(evaluation_path(home.texts, key))
    with pytest.raises(DiskError, match=rf"evaluation {key} .*--evaluations"):
        deletion.delete(home, sqlite, "new", evaluations=False)
    assert key in deletion.delete(home, sqlite, "new", evaluations=True).evaluations
    for run in ("old", "other"):
        deletion.delete(home, sqlite, run, evaluations=False)
    assert files(home) == set()
    assert (counts(sqlite)["runs"], counts(sqlite)["evaluations"]) == (0, 0)


@pytest.mark.parametrize(
    ("removes", "before", "unfinished"),
    [("orchestrator.disk.deletion.discard", 2, []), ("trainers.folders.shutil.rmtree", 0, [".demo-"])],
    ids=["between two paths", "while a folder is removed"],
)
def test_after_a_crash_the_same_command_removes_what_is_left(
    sqlite: Store, home: Home, monkeypatch: pytest.MonkeyPatch, removes: str, before: int, unfinished: list[str]
) -> None:
    create(sqlite, home, "demo-b")
    rows, left = counts(sqlite), {name for name in files(home) if "_evaluations" not in name}
    create(sqlite, home, "demo")
    removed, discard = list[Path](), deletion.discard

    def killed(path: Path) -> None:
        if len(removed) == before:
            raise KeyboardInterrupt
        removed.append(path)
        discard(path)

    with monkeypatch.context() as patched:
        patched.setattr(removes, killed)
        with pytest.raises(KeyboardInterrupt):
            deletion.delete(home, sqlite, "demo", evaluations=True)
    assert files_of_run(home, "demo")
    assert [path.name[:6] for path in home.checkpoints.glob(".*.part")] == unfinished
    again = deletion.delete(home, sqlite, "demo", evaluations=True)
    assert (again.rows, files_of_run(home, "demo"), counts(sqlite)) == ({}, [], rows)
    assert {name for name in files(home) if "_evaluations" not in name} == left  # `coevo store gc` removes those
    with pytest.raises(NotThere, match="run demo: "):
        deletion.delete(home, sqlite, "demo", evaluations=True)


def test_nobody_can_create_the_run_again_until_its_files_are_removed(
    sqlite: Store, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(sqlite, home, "demo")
    holders = list[str | None]()
    discard = deletion.discard

    def watched(path: Path) -> None:
        with sqlite.read() as session:
            holder = queries.run_leases.run_holder(session, "demo")
        holders.append(holder.owner if holder else None)
        discard(path)

    monkeypatch.setattr(deletion, "discard", watched)
    deletion.delete(home, sqlite, "demo", evaluations=True)
    assert {*holders} == {owner()}
    assert counts(sqlite)["run_leases"] == 0


def test_if_prefect_does_not_answer_nothing_is_deleted(sqlite: Store, home: Home) -> None:
    create(sqlite, home, "demo")
    with pytest.raises(DiskError, match="Prefect did not answer"):
        deletion.refuse_at_work(sqlite, "demo", Prefect(PrefectServer("http://127.0.0.1:1")))
    deletion.refuse_at_work(sqlite, "demo", None)


def flow_run_of(prefect_url: str, run: str, state: str) -> dict[str, Any]:
    from tests.services.prefect_server import post  # Prefect reads its settings when it is imported

    [flow] = post(prefect_url, "/flows/filter", flows={"name": {"any_": ["co-evolve"]}})
    return {"flow_id": flow["id"], "name": run, "parameters": {"run": run}, "state": {"type": state}}


def test_a_run_that_prefect_will_start_or_runs_is_refused(sqlite: Store, home: Home, prefect_url: str) -> None:
    from tests.services.prefect_server import post, prefect_at

    create(sqlite, home, "demo-deleted")
    flow_run = flow_run_of(prefect_url, "demo-deleted", "SCHEDULED")
    key, prefect = post(prefect_url, "/flow_runs/", **flow_run)["id"], Prefect(prefect_at(prefect_url))
    with pytest.raises(DiskError, match=r"run demo-deleted: .*`coevo runs cancel demo-deleted`"):
        deletion.refuse_at_work(sqlite, "demo-deleted", prefect)
    post(prefect_url, f"/flow_runs/{key}/set_state", state={"type": "CANCELLED"})
    deletion.refuse_at_work(sqlite, "demo-deleted", prefect)
    killed = {**flow_run, "state": {"type": "RUNNING"}}  # Prefect does not know that its process is gone
    key = post(prefect_url, "/flow_runs/", **killed)["id"]
    with sqlite.write() as session:
        queries.runs.set_run_status(session, "demo-deleted", "running")
    with pytest.raises(DiskError, match="demo-deleted"):
        deletion.refuse_at_work(sqlite, "demo-deleted", prefect)
    with sqlite.write() as session:
        queries.runs.set_run_status(session, "demo-deleted", "done")  # another process went on with the run
    of_flow = post(prefect_url, "/task_runs/", flow_run_id=key, task_key="iteration", dynamic_key="1")["id"]
    failed = {**flow_run, "name": "demo-deleted/1", "tags": ["run:demo-deleted"], "state": {"type": "FAILED"}}
    post(prefect_url, "/flow_runs/", **failed, parent_task_run_id=of_flow)
    post(prefect_url, "/flow_runs/", **failed)  # its parent was deleted, by Prefect's UI perhaps
    flow_runs = deletion.refuse_at_work(sqlite, "demo-deleted", prefect)
    assert len(flow_runs) == 3
    deletion.delete_flow_runs(prefect, flow_runs)
    deletion.delete_flow_runs(prefect, flow_runs)  # it may be repeated
    assert prefect.flow_runs("demo-deleted") == []
    assert "demo-deleted" not in prefect.newest().by_run
    with pytest.raises(DiskError, match="flow runs in Prefect: Prefect did not answer"):
        deletion.delete_flow_runs(Prefect(PrefectServer("http://127.0.0.1:1")), flow_runs)


def test_a_request_of_which_no_run_came_is_deleted_in_prefect(
    sqlite: Store, home: Home, prefect_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.services.prefect_server import AUTH, post, prefect_at

    assert files(home) == set()
    name, prefect = "no-such-setting", Prefect(prefect_at(prefect_url))
    post(prefect_url, "/flow_runs/", **flow_run_of(prefect_url, name, "FAILED"))
    monkeypatch.setenv("PREFECT_API_URL", f"{prefect_url}/api")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", AUTH)
    coevo("runs", "delete", name, "--yes")
    assert prefect.flow_runs(name) == []
    assert "no such run" in refusal("runs", "delete", name, "--yes")
