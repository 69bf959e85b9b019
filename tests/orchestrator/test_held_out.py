from __future__ import annotations

from pathlib import Path

import pytest

from core.types import BenchmarkItem
from orchestrator.question_sets.held_out import BenchmarkError, load_benchmark


def test_the_tiny_world_s_benchmark_has_1000_questions_of_six_levels() -> None:
    items = load_benchmark("micro")
    assert len(items) >= 1000
    assert {item.level for item in items} == set("123456")


def test_a_file_may_have_questions_without_levels_and_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "b.jsonl"
    file.write_text(
        '{"id": 1, "problem": "p", "answer": 2, "level": 3}\n\n{"id": "b", "problem": "q", "answer": "x"}\n'
    )
    assert load_benchmark(str(file)) == [BenchmarkItem("1", "p", "2", "3"), BenchmarkItem("b", "q", "x", None)]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"id": 1, "problem": "p", "answer": 2}\n{"id": 2, "problem": "p"}\n', "line 2: .*KeyError.*answer"),
        ("not JSON\n", "line 1: expected a JSON object with id, problem and answer"),
        ('["id", "problem", "answer"]\n', "line 1"),
        ('{"id": 1, "problem": "p", "answer": 2}\n' * 2, "no id twice"),
        ("\n", "at least one question"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(content)
    with pytest.raises(BenchmarkError, match=f"bad.jsonl.*{complaint}"):
        load_benchmark(str(file))


def test_lone_surrogates_in_a_file_are_replaced(tmp_path: Path) -> None:
    file = tmp_path / "b.jsonl"
    file.write_text(r'{"id": "1\ud83d", "problem": "p\ud83d", "answer": "2\ud83d"}')
    assert load_benchmark(str(file)) == [BenchmarkItem("1\ufffd", "p\ufffd", "2\ufffd", None)]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(BenchmarkError, match=r"cannot read nowhere\.jsonl: No such file"):
        load_benchmark("nowhere.jsonl")
