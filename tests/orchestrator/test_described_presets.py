"""`coevo presets`, and the judge that presets for GPUs have ready."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from core.settings.audit import Audit
from core.settings.parsing import load_config
from core.types import TINY_BASES
from orchestrator.check.needs import lacks_a_judge
from orchestrator.check.presets import describe, describe_all, details_of
from orchestrator.cli import app
from orchestrator.installation.home import PRESETS
from services.api.app import PREFIX, create_app
from services.api.routes.presets import DescribePreset
from storage.session import Store

JUDGED = [path.stem for path in sorted(PRESETS.glob("*.toml")) if lacks_a_judge(load_config(path))]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("COEVO_RAY_ADDRESS", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def coevo(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["presets", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("preset", describe_all(), ids=lambda preset: preset.name)
def test_the_first_line_of_a_preset_s_comment_is_a_sentence(preset: object) -> None:
    about = getattr(preset, "about", "")
    assert about.endswith("."), about


def test_the_list_has_every_preset_with_its_cost_and_what_is_missing() -> None:
    rows = [json.loads(line) for line in coevo("--json").splitlines()]
    assert [row["name"] for row in rows] == sorted(path.stem for path in PRESETS.glob("*.toml"))
    for row in rows:
        tiny = row["base_model"] in TINY_BASES
        assert (row["hours"] is None, row["gpus"] == 0) == (tiny, tiny)
        assert tiny or [need["here"] for need in row["needs"] if need["kind"] == "model"] == [False]
    plan = json.loads(CliRunner().invoke(app, ["plan", "rzero-qwen3-4b", "--json"]).stdout)
    [row] = [row for row in rows if row["name"] == "rzero-qwen3-4b"]
    assert (row["gpus"], row["hours"], row["arxiv"]) == (plan["gpus"], plan["run_hours"], ["2508.05004"])


def test_the_table_has_a_line_for_each_preset_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = coevo().splitlines()
    for path in PRESETS.glob("*.toml"):
        [line] = [line for line in lines if line.split()[:1] == [path.stem]]
        assert describe(path.stem).about in line
    assert not re.search("\x1b", "".join(lines))


def test_one_preset_is_shown_with_what_to_put_where(folder: Path) -> None:
    shown = coevo("poly_epo")
    assert "put a JSONL or Parquet file with 'problem' and 'answer' as columns there" in shown
    assert "beyond_aime (evaluation) - missing: it is fetched from ByteDance-Seed/BeyondAIME" in shown
    (folder / "prompts").mkdir()
    (folder / "prompts" / "polaris.parquet").touch()
    assert "prompts/polaris.parquet (prompts.file) - here" in coevo("poly_epo")


def test_an_unknown_preset_is_refused_with_the_nearest() -> None:
    done = CliRunner().invoke(app, ["presets", "polyepo"])
    assert (done.exit_code, "(did you mean poly_epo?)" in done.stderr) == (1, True)


@pytest.mark.parametrize("name", JUDGED)
def test_the_judge_in_a_comment_is_complete_and_needs_only_a_service(name: str, folder: Path) -> None:
    text = (PRESETS / f"{name}.toml").read_text(encoding="utf-8")
    start, end = text.index("[audit]"), text.index("[serving]")
    block = text[start:end]
    without_none = re.sub(r'^oracle = "none".*\n', "", block, flags=re.MULTILINE)
    ready = re.sub(r"^# (?=[a-z_]+ = |\[)", "", without_none, flags=re.MULTILINE)
    file = folder / "judged.toml"
    file.write_text(text[:start] + ready + text[end:], encoding="utf-8")
    audit = load_config(file).audit
    assert (audit.label, audit.sample, audit.if_unreachable) == ("judge_qwen3_32b", 200, Audit().if_unreachable)
    assert audit.judge is not None
    assert audit.judge.key_variable == "JUDGE_API_KEY"
    one_line = {"audit.oracle": "judge", "audit.judge.url": audit.judge.url, "audit.judge.model": "m"}
    assert load_config(PRESETS / f"{name}.toml", one_line).audit.label == "judge"


def test_the_api_says_what_presets_need_if_it_can_know(sqlite: Store, tmp_path: Path) -> None:
    def presets(describe_preset: DescribePreset | None = None) -> dict[str, dict[str, object]]:
        app = create_app(sqlite, tmp_path, ask_for_keys=False, presets=PRESETS, describe_preset=describe_preset)
        rows = TestClient(app, "http://localhost").get(f"{PREFIX}/presets").json()
        return {row["name"]: row for row in rows}

    assert presets()["demo"]["details"] is None
    row = presets(describe_preset=details_of)["rzero-single-gpu"]
    assert row["details"] == details_of("rzero-single-gpu").model_dump(mode="json")
    assert row["about"] == describe("rzero-single-gpu").about
