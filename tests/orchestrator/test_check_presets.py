"""The list of presets, what each needs, and the judge that presets for GPUs have ready."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from core.settings.audit import Audit
from core.settings.parsing import load_config
from core.types import TINY_BASES
from orchestrator.check.needs import lacks_a_judge
from orchestrator.check.presets import describe, details_of, preset_names
from orchestrator.installation.home import PRESETS
from services.api.app import PREFIX, create_app
from services.api.installation import Installation
from services.api.schemas import PresetDetails
from storage.session import Store
from tests.commands import coevo

pytestmark = pytest.mark.usefixtures("folder")

JUDGED = [path.stem for path in sorted(PRESETS.glob("*.toml")) if lacks_a_judge(load_config(path))]


def test_the_list_has_every_preset_with_its_cost_and_what_is_missing() -> None:
    rows = [json.loads(line) for line in coevo("check", "--presets", "--json").stdout.splitlines()]
    assert [row["name"] for row in rows] == preset_names() == sorted(path.stem for path in PRESETS.glob("*.toml"))
    for row in rows:
        tiny = row["base_model"] in TINY_BASES
        assert (row["hours"] is None, row["gpus"] == 0) == (tiny, tiny)
        assert tiny or [need["here"] for need in row["needs"] if need["kind"] == "model"] == [False]
        assert row["about"].endswith("."), row["about"]
    lines = coevo("check", "--presets", COLUMNS=None).stdout.splitlines()
    for row in rows:
        [line] = [line for line in lines if line.split()[:1] == [row["name"]]]
        assert row["about"] in line
    assert not re.search("\x1b", "".join(lines))


def test_a_preset_s_needs_say_what_to_put_where(folder: Path) -> None:
    def needs() -> dict[str, tuple[bool | None, str | None]]:
        return {need.what: (need.here, need.remedy) for need in describe("poly_epo").needs}

    assert "with 'problem' and 'answer' as columns" in str(needs()["prompts/polaris.parquet"][1])
    assert "it is fetched from ByteDance-Seed/BeyondAIME" in str(needs()["beyond_aime"][1])
    (folder / "prompts").mkdir()
    (folder / "prompts" / "polaris.parquet").touch()
    assert needs()["prompts/polaris.parquet"] == (True, None)


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
    def presets(installation: Installation) -> dict[str, dict[str, object]]:
        app = create_app(sqlite, tmp_path, ask_for_keys=False, installation=installation)
        rows = TestClient(app, "http://localhost").get(f"{PREFIX}/presets").json()
        return {row["name"]: row for row in rows}

    assert presets(Installation(presets=PRESETS))["demo"]["details"] is None
    row = presets(Installation(presets=PRESETS, describe_preset=details_of))["rzero-single-gpu"]
    assert row["details"] == PresetDetails.model_validate(details_of("rzero-single-gpu")).model_dump(mode="json")
    assert row["about"] == describe("rzero-single-gpu").about
