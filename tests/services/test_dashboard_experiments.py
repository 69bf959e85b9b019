"""Runs as experiments, in a real browser: their list, tags and notes, their configuration, and their comparison."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.settings.parsing import load_config, read_preset
from services.drift.series import refresh
from services.views.states import MEANINGS
from storage import queries
from storage.rows import RunOrigin
from storage.session import Store
from tests.api_server import serving
from tests.browsing import LOOKS, look_at, opened, violations, without_complaints
from tests.synthetic_run import fill_run

PRESETS = Path(__file__).parents[2] / "deploy" / "runs"
OVERRIDES = {
    "solver.reward.alpha": 0.75,
    "seed": 5,
    "solver.template.system": "Think step by step.\n" * 10 + "Then answer.",
    "solver.template.examples": [{"question": "1 + 1?", "answer": "\\boxed{2}"}],
}


@pytest.fixture(scope="module")
def store(stored: Store) -> Store:
    """Two runs with figures that differ only in their seed, and `evol`, which has none."""
    for name, seed in (("loop-1", 1), ("loop-2", 2)):
        fill_run(stored, name, per_level=2, seed=seed)
        with stored.write() as session:
            for t in range(4):
                refresh(session, name, t)
    path = PRESETS / "evol_rl.toml"
    with stored.write() as session:
        origin = RunOrigin(read_preset(path), OVERRIDES)
        config = load_config(path, OVERRIDES)
        queries.runs.create_run(session, name="evol", config=config, preset="evol_rl", origin=origin)
    return stored


@pytest.fixture(scope="module")
def address(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(store, tmp_path_factory.mktemp("exports"), presets=PRESETS, papers=PRESETS / "papers.tsv") as url:
        yield url


def test_the_configuration_shows_sources_and_can_be_searched_and_copied(
    address: str, page: Page, tmp_path: Path
) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    with without_complaints(page):
        look_at(page, f"{address}/runs/evol/configuration", "Configuration of evol", LOOKS)
        alpha = page.get_by_role("row").filter(has_text="reward.alpha")
        expect(alpha).to_contain_text("override")
        expect(alpha).to_contain_text("differs Table 4")
        expect(page.get_by_role("row").filter(has_text="reward.clip_high")).to_contain_text("same Table 4")
        rows = page.locator("table.settings tbody tr")
        whole = rows.filter(has_text="template.system").get_by_text("Then answer.")
        expect(whole).to_be_hidden()
        rows.filter(has_text="template.system").get_by_text("Think step by step.").first.click()
        expect(whole).to_be_visible()
        page.get_by_label("Search").fill("solver.reward")
        page.get_by_label("Only what differs").check()
        page.wait_for_url("**/configuration?text=solver.reward&differs=1")
        expect(alpha).to_be_visible()
        expect(rows.filter(has_text="clip_high")).to_have_count(0)
        page.reload()
        expect(rows.filter(has_text="clip_high")).to_have_count(0)  # the filters are in the address
        expect(alpha).to_be_visible()
        page.get_by_role("button", name="Copy as TOML").click()
        expect(page.get_by_text("Copied.")).to_be_visible()
        copied = page.evaluate("navigator.clipboard.readText()")
    file = tmp_path / "copied.toml"
    file.write_text(copied, encoding="utf-8")
    assert load_config(file) == load_config(PRESETS / "evol_rl.toml", OVERRIDES)


def test_tags_and_note_are_edited_in_place_by_keyboard(address: str, store: Store, page: Page) -> None:
    with opened(page, f"{address}/runs/evol"):
        edit = page.get_by_role("button", name="Edit tags and note")
        edit.press("Enter")
        expect(page.get_by_label("Tags, with")).to_be_focused()
        page.keyboard.type("one two")
        page.keyboard.press("Tab")
        page.keyboard.type("line 1\n<b>line 2</b>")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_text("Saved.")).to_be_visible()
        expect(edit).to_be_focused()
        expect(page.locator(".note-text")).to_have_text("line 1\n<b>line 2</b>")
        look_at(page, f"{address}/runs/evol", "evol", LOOKS)
        edit.click()
        page.get_by_role("textbox", name="Note").fill("lost")
        page.keyboard.press("Escape")
        expect(page.get_by_text("Not saved.")).to_be_visible()
    with store.read() as session:
        run = queries.runs.get_run(session, "evol")
    assert (run.tags, run.note) == (["one", "two"], "line 1\n<b>line 2</b>")
    # A tag that is not allowed is a 422, which the browser reports in its console.
    edit.click()
    page.get_by_label("Tags, with").fill("Not-small")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("body.add.0")


def test_a_tag_that_somebody_adds_while_another_one_edits_stays(address: str, store: Store, page: Page) -> None:
    page.clock.install()
    with opened(page, f"{address}/runs/loop-1"):
        page.get_by_role("button", name="Edit tags and note").click()
        with store.write() as session:
            queries.run_notes.annotate(session, "loop-1", add=["theirs"], note="their note")
        with page.expect_response("**/api/v1/runs/loop-1"):
            page.clock.run_for(60_000)
        page.get_by_label("Tags, with").fill("mine")
        page.get_by_role("button", name="Save", exact=True).click()
        expect(page.get_by_text("Saved.")).to_be_visible()
    with store.read() as session:
        run = queries.runs.get_run(session, "loop-1")
    assert (run.tags, run.note) == (["mine", "theirs"], "their note")


def test_the_list_is_filtered_and_sorted_by_its_address(address: str, store: Store, page: Page) -> None:
    with store.write() as session:
        queries.run_notes.annotate(session, "loop-2", add=["chosen"])
    names = page.locator("article.run h2 a")
    with without_complaints(page):
        look_at(page, f"{address}/?sort=name", "Runs", LOOKS)
        expect(names).to_have_text(["evol", "loop-1", "loop-2"])
        page.get_by_role("searchbox", name="Name").fill("LOOP")
        page.get_by_role("searchbox", name="Name").press("Enter")
        expect(names).to_have_text(["loop-1", "loop-2"])
        page.locator("form[role=search] select", has_text="chosen").select_option("chosen")
        expect(names).to_have_text(["loop-2"])
        assert "tag=chosen" in page.url
        page.get_by_role("button", name="Remove tag chosen").click()
        states = page.get_by_label("State").locator("option").evaluate_all("all => all.map(option => option.value)")
        assert states == ["", *MEANINGS]
        page.get_by_label("State").select_option("failed")
        expect(page.get_by_text("No runs match these filters.")).to_be_visible()
        page.get_by_role("link", name="All runs").click()
        expect(names).to_have_count(3)
        expect(page.get_by_role("searchbox", name="Name")).to_have_value("")
        page.get_by_text("More filters").click()
        page.get_by_label("Method").fill("evol_rl")
        page.get_by_label("Method").press("Enter")
        expect(names).to_have_text(["evol"])
        expect(page.get_by_label("Method")).to_be_visible()
        page.get_by_role("link", name="All runs").click()
        page.get_by_label("Sort by").select_option("-held_out")
        expect(names).to_have_count(2)  # `evol` has no held-out accuracy


def test_the_list_is_a_table_that_sorts_and_that_is_remembered(address: str, page: Page) -> None:
    table = page.get_by_role("region", name="Runs")
    names = table.locator("tbody th a")
    with without_complaints(page):
        page.set_viewport_size({"width": 1400, "height": 900})
        page.goto(address)
        page.get_by_role("button", name="table").click()
        page.wait_for_url("**/?view=table")
        expect(names).to_have_count(3)
        page.goto(address)  # the address does not say so, but this browser's last view was the table
        page.get_by_role("link", name="name", exact=True).click()
        expect(names).to_have_text(["evol", "loop-1", "loop-2"])
        page.get_by_role("link", name="name", exact=True).click()
        page.wait_for_url("**/?sort=-name")
        expect(names).to_have_text(["loop-2", "loop-1", "evol"])
        expect(page.get_by_role("columnheader", name="name")).to_have_attribute("aria-sort", "descending")
        latest = f"{address}/api/v1/comparison/latest?run=loop-1&name=held_out&name=label_accuracy"
        figures = page.request.get(latest).json()
        row = table.get_by_role("row").filter(has_text="loop-1")
        for figure in figures[0]["figures"]:
            expect(row).to_contain_text(f"{100 * figure['last']['value']:.1f}%")
            expect(row).to_contain_text(f"n {figure['last']['n']}")
        assert len(figures[0]["figures"]) == 2
        expect(row).to_contain_text("3 of 3")
        expect(table.get_by_role("row").filter(has_text="evol_rl")).to_contain_text("evol")
        page.get_by_role("link", name="held-out accuracy").click()
        page.wait_for_url("**/?sort=-held_out")
        best_first = page.request.get(f"{address}/api/v1/runs?sort=-held_out").json()["items"]
        expect(names).to_have_text([run["name"] for run in best_first])
        look_at(page, f"{address}/?view=table", "Runs", LOOKS)
        expect(page.locator("article.run")).to_have_count(3)  # on a phone
        expect(page.get_by_role("button", name="table")).to_have_count(0)


def test_compared_runs_show_what_differs_first_and_are_drawn_as_groups(address: str, page: Page) -> None:
    query = "run=loop-1&run=loop-2&run=evol&series=kl&baseline=loop-1"
    with without_complaints(page):
        look_at(page, f"{address}/compare?{query}", "Compare runs", LOOKS)
        expect(page.locator(".panels section").first).to_contain_text("Settings that differ")
        expect(page.get_by_role("row").filter(has_text="solver.reward.type")).to_contain_text("evol_rl")
        kl = page.locator("section.panel").filter(has=page.get_by_role("heading", name="kl", exact=True))
        expect(kl.locator(".legend li")).to_have_count(1)
        expect(kl.locator(".legend li")).to_contain_text("mean of 2 runs")
        page.get_by_label("Runs that differ only in their seed").select_option("single")
        expect(kl.locator(".legend li")).to_have_text(["loop-1", "loop-2"])
        page.get_by_label("Added series by").select_option("step")
        expect(kl.get_by_text("step →")).to_be_visible()
        table = page.get_by_role("region", name="Latest figures")
        page.set_viewport_size({"width": 1400, "height": 900})
        assert table.evaluate("table => table.scrollWidth <= table.clientWidth")
        latest = table.get_by_role("row")
        expect(latest.filter(has_text="loop-2")).to_contain_text(re.compile(r"[+−][0-9.]+ points .* to the baseline"))
        expect(latest.filter(has_text="loop-1")).not_to_contain_text("to the baseline")
        page.get_by_label("Add a series").select_option("reward_mean")
        expect(page.get_by_role("heading", name="reward_mean", exact=True)).to_be_visible()
        assert "series=kl&series=reward_mean" in page.url
        page.get_by_role("button", name="Remove kl").click()
        expect(kl).to_have_count(0)


def test_what_only_one_of_the_compared_runs_has_is_behind_a_fold(address: str, page: Page) -> None:
    settings = page.locator("#settings")
    heading = page.get_by_role("heading", name="Held-out accuracy")
    with opened(page, f"{address}/compare?run=loop-1&run=evol"):
        shown = settings.get_by_role("region", name="Settings that differ")
        expect(shown).to_contain_text("solver.reward.type")
        expect(shown).not_to_contain_text("no such setting")
        expect(shown).not_to_contain_text("challenger.")
        settings.get_by_text("Settings that only some of these runs have").click()
        others = settings.get_by_role("region", name="Settings that only some runs have")
        for row in others.locator("tbody tr").all():
            expect(row).to_contain_text("no such setting")
        expect(others).to_contain_text("challenger.reward.variant")
        expect(heading).to_have_count(0)  # `evol` has no figures
        page.get_by_text("Figures that only one of these runs has, or none").click()
        expect(heading).to_be_visible()
        assert violations(page) == []
        page.goto(f"{address}/compare?run=loop-1&run=loop-2")
        expect(heading).to_be_visible()
        expect(page.locator("#comparison .about")).to_contain_text("nothing is known about another training")
        page.goto(f"{address}/compare?run=loop-1")
        expect(heading).to_be_visible()
