"""The lines of docs/api.md that load exports into pandas, run on votes with answers that look like something else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from api_examples import RUN, fill

from core.types import Rollout, question_id
from storage import queries
from storage.exports.files import PLAIN_FORMATS
from storage.exports.runs import export
from storage.exports.selection import Selection
from storage.session import Store

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
ANSWERS = ("007", "1e5", "NA", "true", None)
SEED = 2**62 + 1  # a float has no such number


def test_answers_stay_texts_and_missing_numbers_missing(
    sqlite: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sqlite)
    key = question_id(RUN, 1, 0)
    votes = [
        Rollout(key, 4 + i, "", answer, 7, "stop", None, None, f"{RUN}/base/0", SEED)
        for i, answer in enumerate(ANSWERS)
    ]
    with sqlite.write() as session:
        queries.questions.add_rollouts(session, votes)
    names: dict[str, Any] = {"pd": pd}
    for kind in PLAIN_FORMATS:
        exported = export(sqlite, tmp_path / "exports", Selection(RUN, "1", "votes"), kind)
        shutil.copyfile(exported.path, tmp_path / f"votes.{kind}")
        names["manifest"] = exported.manifest
    monkeypatch.chdir(tmp_path)
    [program] = re.findall(r"```python\n(types = .*?)```", PAGE, re.DOTALL)
    exec(program, names)
    for name in ("from_parquet", "from_csv", "from_jsonl"):
        frame = names[name]
        assert len(frame) == 4 * 4 + len(ANSWERS), name
        odd = frame[frame.seed == SEED]
        assert [None if pd.isna(answer) else answer for answer in odd.answer] == [*ANSWERS], name
        assert odd.mean_entropy.isna().all(), name
        assert frame.in_class.isna().sum() >= 1, name
        for column in names["manifest"]["columns"]:
            assert str(frame[column["name"]].dtype) == names["types"][column["type"]], (name, column["name"])
