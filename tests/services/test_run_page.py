"""A run's page as one file: it shows what the dashboard shows, asks for nothing, and runs no text as code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from core.settings.parsing import parse_config
from core.types import Evaluated
from services.api.app import create_app
from services.api.run_page import write_run_page
from services.dashboard import one_file
from services.drift.series import refresh
from storage import queries
from storage.session import Store, open_store
from tests.api_server import served
from tests.browsing import look_at, without_complaints
from tests.orchestrator.judged_run import fill_judged_run
from tests.orchestrator.small_run import small_run
from tests.run_in_each_state import store_each_state
from tests.synthetic_run import CONFIG, create, evaluate, fill_run, label, vote_of

SCRIPT = "<script>document.title = 'run'</script>"
IMAGE = "<img src=x onerror=\"document.title = 'run'\">"
_HEADINGS = "[...document.querySelectorAll('.panel h2')].map((heading) => heading.textContent)"
LOOKS = [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)]


@dataclass
class Pages:
    """The pages of runs in one store, as files and by a server."""

    url: str
    folder: Path

    def file(self, run: str) -> str:
        return (self.folder / f"{run}.html").as_uri()

    def text(self, run: str) -> str:
        return (self.folder / f"{run}.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """A finished run, one whose texts are hostile, one that a judge has graded, one of given prompts, and those of
    `store_each_state`."""
    folder = tmp_path_factory.mktemp("pages")
    store = open_store(f"sqlite:///{folder}/coevo.db", create=True)
    fill_run(store, "demo")
    with store.write() as session:
        for t in (1, 2, 3):
            refresh(session, "demo", t)
    _fill_hostile_run(store)
    fill_judged_run(store, "judged")
    given = {"prompts": {"file": "micro", "limit": 8}, "solver": {"reward": {"type": "srt"}}, "iterations": 2}
    with store.write() as session:
        create(session, "given", parse_config(given, "a test"))
        evaluate(session, "given", 0, [Evaluated(f"i{i}", "1", 8, 4, True, True) for i in range(4)], took=1)
    shared = {**CONFIG.model_dump(), "shared": True, "audit": {"oracle": None}}
    small_run(store, parse_config(shared, source="test"))
    store_each_state(store)
    for run in ("demo", "hostile", "judged", "given", "small", "running", "failed"):
        assert write_run_page(store, run, folder) == folder / f"{run}.html"
    with served(create_app(store, folder / "exports", ask_for_keys=False)) as url:
        yield Pages(url, folder)
    store.close()


def _fill_hostile_run(store: Store) -> None:
    with store.write() as session:
        create(session, "hostile")
        items = [Evaluated(f"i{i}", f"$<b>{i}", 8, 4, True, True) for i in range(4)]
        evaluate(session, "hostile", 0, items, took=1)
        text = f"\"'>{SCRIPT} {IMAGE} <!-- {{{{report}}}} \ud800 \x00 \u202e \\[\\href{{javascript:alert(1)}}{{x}}\\]"
        questions = [(text, vote_of((SCRIPT, 5), ("\\frac$", 4))), ("Is $\\frac{1}{2}$ half?", vote_of(("1", 5)))]
        label(session, "hostile", 1, [(text, vote) for text, vote in questions], CONFIG)
        queries.run_notes.annotate(session, "hostile", add=["a"], note=f"</script>{SCRIPT}{IMAGE}")
        stage = {"run": "hostile", "iteration": 1, "stage": "train_solver", "owner": "me"}
        queries.ledger.claim_stage(session, **stage, lease_seconds=60)
        queries.ledger.fail_stage(session, **stage, error=f"StageError: {SCRIPT}")


@pytest.fixture
def requests(pages: Pages, page: Page) -> Iterator[list[str]]:
    """The addresses that the browser asks for in a test, which must not ask for any but the file."""
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    with without_complaints(page):
        yield asked
    assert [url for url in asked if not url.startswith((pages.folder.as_uri(), "data:"))] == []


def test_the_file_shows_all_that_the_dashboard_shows_of_the_run(pages: Pages, page: Page, requests: list[str]) -> None:
    page.goto(pages.file("demo"))
    expect(page.get_by_role("heading", name="demo", level=1)).to_be_visible()
    expect(page.locator(".headline")).to_contain_text("The Solver learned: +")
    expect(page.locator(".toml")).to_contain_text("As a file for")
    in_file: list[str] = page.evaluate(_HEADINGS)
    charts = page.locator(".picture svg")
    assert charts.count() > 10
    for figure in ("pass@1", "greedy", "majority of 8"):
        assert charts.locator("title", has_text=f"{figure}, iteration 3").count() == 1, figure
    assert "n 240" in (page.locator(".tiles").text_content() or "")
    assert page.locator("table.questions tbody tr").count() == 3 * 6
    assert page.locator(".problem, .loading, a, button, form, input, select").count() == 0
    assert "click" not in page.locator("main").inner_text().lower()
    assert len(requests) == 1
    of_server = page.context.new_page()
    of_server.goto(f"{pages.url}/runs/demo")
    expect(of_server.get_by_role("heading", name="Alerts", exact=True)).to_be_visible()
    expect(of_server.locator(".headline")).to_be_visible()
    assert in_file[: len(shown := of_server.evaluate(_HEADINGS))] == shown
    assert len(in_file) > len(shown) > 8


@pytest.mark.parametrize("run", ["demo", "hostile"])
def test_the_file_can_be_read_on_every_screen(pages: Pages, page: Page, requests: list[str], run: str) -> None:
    look_at(page, pages.file(run), run, LOOKS)


@pytest.mark.parametrize(
    ("run", "texts"),
    [
        ("judged", ["Pseudo-label accuracy"]),
        ("given", ["Only the base model has been evaluated", "Nothing can be said about learning yet"]),
        ("small", ["Held-out accuracy", "one model in both roles"]),
        ("running", ["iteration 2, train_solver", "Nothing can be said yet"]),
        ("failed", ["evaluate 3 failed: BenchmarkError: no [red]such[/] <b>file</b>"]),
    ],
)
def test_a_run_of_every_kind_and_state_has_a_file(
    pages: Pages, page: Page, requests: list[str], run: str, texts: list[str]
) -> None:
    page.goto(pages.file(run))
    expect(page.locator(".toml")).to_be_visible()
    for text in texts:
        expect(page.locator("main")).to_contain_text(text, ignore_case=True)
    assert page.locator(".problem:not(.reason), .loading").count() == 0


def test_a_text_of_a_model_is_shown_and_never_run(pages: Pages, page: Page, requests: list[str]) -> None:
    page.goto(pages.file("hostile"))
    first = page.locator("table.questions td.text").first
    expect(first).to_contain_text(f"\"'>{SCRIPT} {IMAGE} <!-- {{{{report}}}}")
    expect(page.locator(".note-text")).to_have_text(f"</script>{SCRIPT}{IMAGE}")
    expect(page.locator("table.questions td.text").nth(1).locator("math mfrac")).to_be_visible()
    expect(page).to_have_title("hostile · coevo")
    assert page.locator("img, iframe, object, [href]").count() == 0


def test_the_policy_of_the_file_refuses_requests_and_all_other_scripts(pages: Pages, page: Page) -> None:
    text = pages.text("hostile")
    assert text.count("<script") == 9  # a text of a run cannot begin another, nor end the one that it is in
    policy = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', text)[0]
    assert "connect-src 'none'" in policy
    assert not re.search(r"unsafe|http|\*|'self'", policy)
    page.goto(pages.file("demo"))
    expect(page.locator(".toml")).to_be_visible()
    refused: list[Any] = page.evaluate(
        """async (url) => {
          const refused = [];
          addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
          const script = document.createElement("script");
          script.textContent = "document.title = 'run'";
          document.body.append(script);
          await fetch(url).catch(() => refused.push("no answer"));
          while (refused.length < 3) await new Promise((resolve) => setTimeout(resolve, 10));
          return [...refused, document.title];
        }""",
        pages.url,
    )
    assert {*refused} == {"script-src-elem", "connect-src", "no answer", "demo · coevo"}


def test_the_file_is_small_and_every_answer_in_it_is_one(pages: Pages) -> None:
    size, data = len(pages.text("demo")), len(_report(pages, "demo"))
    assert size - data < 1_000_000  # most of them are the libraries
    assert data < 200_000
    answers = json.loads(_report(pages, "demo"))["answers"]
    assert {status for status, _ in answers.values()} == {200}
    assert all("<" not in _report(pages, run) for run in ("demo", "hostile"))


def _report(pages: Pages, run: str) -> str:
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', pages.text(run), re.DOTALL)
    assert found is not None
    return found[1]


def test_only_the_newest_iterations_have_their_questions_in_the_file(sqlite: Store, tmp_path: Path) -> None:
    with sqlite.write() as session:
        create(session, "long")
        for t in range(1, 13):
            label(session, "long", t, [(f"What is {i} + {t}?", vote_of((str(i + t), 6))) for i in range(9)], CONFIG)
    text = write_run_page(sqlite, "long", tmp_path).read_text(encoding="utf-8")
    asked = re.findall(r"/api/v1/runs/long/iterations/(\d+)/questions\?", text)
    assert [*map(int, asked)] == [*range(3, 13)]
    assert text.count("What is 3 + 12?") == 1
    assert "What is 8 + 12?" not in text


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        ({"a": 'import { b } from "./b.js";', "b": 'import { a } from "./a.js";\nexport const b = 1;'}, "imports"),
        ({"a": 'import * as b from "./b.js";', "b": "export const b = 1;"}, "usual form"),
        ({"a": "export default 1;"}, "usual form"),
    ],
)
def test_modules_that_cannot_be_put_into_one_script_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, modules: dict[str, str], expected: str
) -> None:
    for name, source in modules.items():
        (tmp_path / f"{name}.js").write_text(source)
    monkeypatch.setattr(one_file, "HERE", tmp_path)
    with pytest.raises(ValueError, match=expected):
        one_file.bundle("a.js")


def test_a_module_is_in_the_script_once_and_before_those_that_import_it() -> None:
    script = one_file.bundle("static/report.js")
    modules = re.findall(r"^const (\$static_\w+) = \(\(\) => \{$", script, re.MULTILINE)
    assert len(modules) == len({*modules}) > 20
    assert modules[-1] == "$static_report_js"
    for name in modules:
        assert script.index(f"const {name} = ") < script.find(f" = {name};") or name == modules[-1]
    assert "$static_app_js" not in modules
