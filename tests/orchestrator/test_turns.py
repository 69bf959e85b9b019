"""One process at a time has the inference applications, and those that wait know who has them."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest

from core.settings.serving import Serving
from core.types import Checkpoint, StageKey
from orchestrator.evaluation import models, request
from orchestrator.installation.home import Home
from orchestrator.reporting import progress
from orchestrator.reporting.run_log import recorded
from orchestrator.serving import turns
from orchestrator.stages.context import Context
from services.views.reasons import waits_for_turn
from storage import queries
from storage.files.run_logs import last_events
from storage.rows import StageRow
from storage.session import Store
from tests.live import wait_until
from tests.synthetic_run import NO_SERVICES, context_of, create

HOLD = """
import sys
from pathlib import Path
from orchestrator.installation.home import Home
from orchestrator.serving.turns import exclusive_use
with exclusive_use(Home(Path(sys.argv[1])), sys.argv[2]):
    print("has them", flush=True)
    input()
"""


@contextmanager
def holding(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a lock, as `program` says."""
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "has them\n"
        yield process
        process.kill()


def holder(folder: Path, name: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """Another process that has the applications."""
    return holding(HOLD, str(folder), name)


def test_who_waits_is_told_who_has_the_applications_also_when_another_gets_them(tmp_path: Path) -> None:
    home, told, second = Home(tmp_path), list[str](), threading.Event()

    def tell(name: str) -> None:
        told.append(name)
        if name == "b's evaluate 1":
            second.set()

    with turns.exclusive_use(home, "a's evaluate 2") as _, (tmp_path / "serving.lock").open("a+") as lock:
        waiting = threading.Thread(target=lambda: _use(home, "c", tell))
        waiting.start()
        wait_until(lambda: told == ["a's evaluate 2"], "the name of the first")
        turns._write(lock, "b's evaluate 1")  # as if the first had ended and another had been before the waiting one
        assert second.wait(30)
    waiting.join()
    assert told == ["a's evaluate 2", "b's evaluate 1"]


def test_an_evaluation_that_waits_names_the_one_that_it_waits_for(
    sqlite: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NamedError(Exception):
        pass

    def report(_done: int, _total: int, what: str) -> None:
        if waiting_for in what:
            raise NamedError(what)

    home, waiting_for = Home(tmp_path), "demo's train_solver 3"
    folder = Checkpoint("micro", "", "base", 0, 0, "/m", "aa", None)
    monkeypatch.setattr(models.cluster, "join", lambda _home: NO_SERVICES)
    model = models.Model("m", {"folder": "m"}, {"name": "e"}, partial(models._served, home, folder, Serving()))
    monkeypatch.setattr(request, "find_model", lambda *_: model)
    asked = request.EvaluationRequest(model="m", benchmarks=["micro"], limit=1)
    with holder(tmp_path, waiting_for), pytest.raises(NamedError, match=waiting_for):
        request.evaluate(home, sqlite, asked, report)


HOLD_EVALUATION = """
import fcntl, sys
with open(sys.argv[1], "a") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX, 1, int(sys.argv[2], 16) >> 2)
    print("has them", flush=True)
    input()
"""


def test_two_processes_do_not_work_on_one_evaluation_at_once(tmp_path: Path) -> None:
    """Two that ask a URL use no applications. Other evaluations of it go on meanwhile."""
    key, other = f"{2**63:016x}", f"{2**63 + 4:016x}"
    home, notes, entered = Home(tmp_path), list[str](), threading.Event()

    def work_alone() -> None:
        with request._alone(home, key, lambda _done, _total, note: notes.append(note)):
            entered.set()

    with holding(HOLD_EVALUATION, str(tmp_path / "evaluations.lock"), key) as process:
        with request._alone(home, other, lambda *_: notes.append("it waits too")):
            pass
        waiting = threading.Thread(target=work_alone)
        waiting.start()
        wait_until(lambda: notes == ["waiting for another process that works on the same evaluation"], "the note")
        assert not entered.is_set()
        process.kill()
        assert entered.wait(30)
        waiting.join()


def _use(home: Home, name: str, waiting: turns.Callable[[str], None]) -> None:
    with turns.exclusive_use(home, name, waiting):
        pass


def test_a_killed_holder_frees_the_applications_and_its_name_does_not_stay(tmp_path: Path) -> None:
    told = list[str]()
    with holder(tmp_path, "dead's evaluate 1") as process:
        process.kill()
        process.wait()
        with turns.exclusive_use(Home(tmp_path), "a's evaluate 2", told.append):
            assert told == []
            assert (tmp_path / "serving.lock").read_text() == "a's evaluate 2"
    assert (tmp_path / "serving.lock").read_text() == ""


def test_a_stage_s_note_names_whom_it_waits_for_then_says_that_weights_are_loaded_and_then_ends(
    sqlite: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = list[tuple[int, int, str]]()
    with sqlite.write() as session:
        create(session, "r")
    monkeypatch.setattr("orchestrator.stages.context.serve_checkpoints", lambda *_: notes.append((-1, -1, "swapped")))
    monkeypatch.setattr("orchestrator.stages.context.reserved", lambda _: {})
    context = context_of(sqlite, "r", 2, home=tmp_path)

    def note(done: int, total: int, text: str) -> None:
        notes.append((done, total, text))
        if text.startswith("waiting"):
            process.kill()

    context = Context(context.run, 2, "evaluate", note)
    with recorded(Home(tmp_path), "r", 2, "evaluate"):
        with holder(tmp_path, "b's label_questions 1") as process, context.serving({}):
            assert (tmp_path / "serving.lock").read_text() == "r's evaluate 2"
        with context.serving({}):
            pass  # nobody else has them, so there is nothing to say
    log = [event.message for event in last_events(Home(tmp_path).run_logs, "r", 9)]
    assert [re.sub(r"\d+ s$", "N s", message) for message in log] == [
        "waiting for b's label_questions 1 to finish with the inference applications",
        "got its turn with the inference applications after N s",
    ]
    served = [(0, 0, "loading weights into the inference applications"), (-1, -1, "swapped"), (0, 0, "")]
    waited = (0, 0, "waiting for b's label_questions 1 to finish with the inference applications")
    assert notes == [waited, *served, *served]


@pytest.mark.usefixtures("prefect_artifacts")
def test_a_note_is_stored_at_once_and_so_is_the_first_progress_after_it() -> None:
    stored = list[tuple[int, int, str]]()
    with progress.reported(StageKey("r", 1, "evaluate"), lambda *report: stored.append(report)) as report:
        reports = [(0, 0, "waiting"), (0, 0, "loading"), (0, 0, ""), (1, 9, "questions"), (2, 9, "questions")]
        for done, total, note in reports:
            report(done, total, note)
    assert stored == reports[:4]  # the last came too soon after the one before it


@pytest.mark.usefixtures("prefect_artifacts")
def test_the_progress_of_a_stage_with_its_remaining_time_is_shown_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def show() -> str:
        with progress.reported(StageKey("r", 1, "evaluate"), lambda *_: None, lambda: "3 to 5 min left") as report:
            report(1, 9, "questions")
        return capsys.readouterr().err

    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    assert show() == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # as rich knows a terminal
    monkeypatch.setenv("COLUMNS", "200")
    assert re.search(r"evaluate 1 .*1/9 questions.*3 to 5 min left", show())


@pytest.fixture
def prefect_artifacts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Prefect server takes the artifact of the progress."""
    monkeypatch.setattr(progress.StageProgress, "__init__", lambda *_: None)
    monkeypatch.setattr(progress.StageProgress, "update", lambda *_: None)
    monkeypatch.setattr(progress.StageProgress, "remove", lambda *_: None)


def test_only_a_note_about_the_turn_makes_a_stage_queued(sqlite: Store) -> None:
    def stage_with(done: int, total: int, note: str) -> StageRow:
        key = {"run": "r", "iteration": 1, "stage": "evaluate", "owner": "me"}
        with sqlite.write() as session:
            queries.ledger.claim_stage(session, **key, lease_seconds=60)
            queries.ledger.note_progress(session, **key, done=done, total=total, note=note)
            return queries.ledger.stages_of(session, "r")[-1]

    with sqlite.write() as session:
        create(session, "r")
    waiting = "waiting for b's evaluate 1 to finish with the inference applications"
    assert waits_for_turn(stage_with(0, 0, waiting))
    assert not waits_for_turn(stage_with(3, 8, waiting))
    assert not waits_for_turn(stage_with(0, 0, "waiting for 2 GPU of 4; running: none"))
    assert not waits_for_turn(stage_with(0, 0, ""))
