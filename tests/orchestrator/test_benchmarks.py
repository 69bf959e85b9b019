from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from core.settings.config import CoEvolution
from core.types import TINY_BASES, BenchmarkItem
from orchestrator.installation.home import SUITES
from orchestrator.question_sets.benchmarks import (
    BenchmarkError,
    definition_of,
    evaluated_in,
    expected_file,
    known_benchmarks,
    load,
    load_benchmark,
    read_suite,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the shipped benchmarks' questions are looked for."""
    monkeypatch.setenv("COEVO_BENCHMARKS", str(tmp_path))
    return tmp_path


def test_the_tiny_world_s_benchmark_has_1000_questions_of_six_levels() -> None:
    items = load_benchmark("micro")
    assert len(items) >= 1000
    assert {item.level for item in items} == set("123456")


def test_a_file_may_have_questions_without_levels_blank_lines_and_lone_surrogates(tmp_path: Path) -> None:
    file = tmp_path / "b.jsonl"
    file.write_text(
        '{"id": 1, "problem": "p", "answer": 2, "level": 3}\n\n'
        r'{"id": "b\ud83d", "problem": "q\ud83d", "answer": "x\ud83d"}'
    )
    expected = [BenchmarkItem("1", "p", "2", "3"), BenchmarkItem("b\ufffd", "q\ufffd", "x\ufffd", None)]
    assert load_benchmark(str(file)) == expected


LONG = json.dumps({"x" * 100_000: 1})


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("b.jsonl", '{"id": 1, "problem": "p", "answer": 2}\n{"id": 2, "problem": "p"}\n', "line 2: column 'answer': "),
        ("b.jsonl", "not JSON\n", "line 1: not JSON"),
        ("b.jsonl", '["id", "problem", "answer"]\n', "line 1"),
        ("b.jsonl", '{"id": 1, "problem": "p", "answer": 2}\n' * 2, "no id twice"),
        ("b.jsonl", "\n", "at least one question"),
        ("b.jsonl", LONG, "the columns are 'x+…$"),
        ("b.jsonl", None, "cannot be read"),
        ("mmlu_pro", {"options": ["x", "y"], "answer": "C"}, "expected a letter up to B, got 'C'"),
        ("mmlu_pro", {"options": "x, y", "answer": "A"}, "column 'options': expected a list of options"),
        ("mmlu_pro", {"options": ["x", "y"], "answer": True}, "column 'answer': expected a text or a number"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong_however_long_it_is(
    folder: Path, name: str, content: str | dict[str, object] | None, complaint: str
) -> None:
    file = folder / (name if name.endswith(".jsonl") else f"{name}.jsonl")
    if content is not None:
        file.write_text(content if isinstance(content, str) else json.dumps({"question": "Which?", **content}))
    with pytest.raises(BenchmarkError, match=f"{file.name}.*{complaint}") as error:
        load_benchmark(str(file) if name == file.name else name)
    assert len(str(error.value)) < 2_000


def test_a_parquet_and_a_csv_file_are_read_alike(tmp_path: Path) -> None:
    rows = [{"problem": "1 + 1?", "answer": 2, "subject": "sums"}, {"problem": "2\n+ 2?", "answer": 4, "subject": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "b.parquet")
    pa.csv.write_csv(pa.Table.from_pylist(rows), tmp_path / "b.csv")
    expected = [
        BenchmarkItem("b/00000", "1 + 1?", "2", None, "sums"),
        BenchmarkItem("b/00001", "2\n+ 2?", "4", None, None),
    ]
    assert load_benchmark(str(tmp_path / "b.parquet")) == expected
    assert load_benchmark(str(tmp_path / "b.csv")) == expected


def test_numbers_in_a_csv_file_keep_all_their_digits(tmp_path: Path) -> None:
    """pyarrow would read both columns as floats."""
    rows = ["problem,answer,level", "a?,12345678901234567890123,1", "b?,0.5,0.25", "c?,9007199254740993,"]
    (tmp_path / "b.csv").write_text("\n".join(rows))
    loaded = load_benchmark(str(tmp_path / "b.csv"))
    assert [item.answer for item in loaded] == ["12345678901234567890123", "0.5", "9007199254740993"]
    assert [item.level for item in loaded] == ["1", "0.25", None]


def test_options_are_lettered_and_the_answer_is_a_letter(folder: Path) -> None:
    row = {"question_id": 70, "question": "Which?", "options": ["x", "y", "z"], "answer": "C", "category": "law"}
    (folder / "mmlu_pro.jsonl").write_text(json.dumps(row))
    question = "Which?\nOptions are:\n(A): x\n(B): y\n(C): z"
    assert load_benchmark("mmlu_pro") == [BenchmarkItem("70", question, "C", None, "law")]
    request = (
        "Please reason step by step, and put your final answer option within \\boxed{}. Only put the option letter in "
        "the box, e.g. \\boxed{A}. There is only one correct answer."
    )  # as in R-Zero's evaluation/eval_mmlupro.py
    asked = definition_of("mmlu_pro").template.messages(question)
    assert asked == [{"role": "user", "content": f"{question}\n\n\n{request}"}]
    (folder / "own.toml").write_text(
        'title = "own"\nsource = "me"\nanswers = "choice"\n[columns]\noptions = "options"\n'
    )
    row = {"problem": "Which {text}?", "options": ["{letter}", "y"], "answer": "B"}
    (folder / "own.jsonl").write_text(json.dumps(row))
    (item,) = load_benchmark(str(folder / "own.toml"))
    assert item.problem == "Which {text}?\n\nOptions:\nA. {letter}\nB. y"


def test_options_of_their_own_columns_are_put_into_an_order_that_does_not_change(folder: Path) -> None:
    names = ["Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3))]
    rows = [{"Record ID": f"r{i}", "Question": "Which?", **dict(zip(names, "ptuv", strict=True))} for i in range(40)]
    (folder / "gpqa_diamond.jsonl").write_text("\n".join(map(json.dumps, rows)))
    items = load_benchmark("gpqa_diamond")
    assert items == load_benchmark("gpqa_diamond")
    for item in items:
        options = dict(line.split(". ") for line in item.problem.splitlines()[2:])
        assert sorted(options.values()) == [*"ptuv"]
        assert options[item.answer] == "p"
    assert {item.answer for item in items} == {*"ABCD"}


def test_an_own_definition_lies_beside_its_questions(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('title = "mine"\nsource = "me"\n[columns]\nquestion = "q"\nanswer = "a"\n')
    (tmp_path / "mine.jsonl").write_text('{"q": "1 + 1?", "a": "2"}')
    assert load_benchmark(str(tmp_path / "mine.toml")) == [BenchmarkItem("mine/00000", "1 + 1?", "2")]
    (tmp_path / "mine.toml").write_text('title = "mine"\nsource = "me"\noption = "no text"\n')
    with pytest.raises(BenchmarkError, match=r"option: .*\{letter\}.*'no text'"):
        load_benchmark(str(tmp_path / "mine.toml"))
    (tmp_path / "mine.toml").write_text('title = "mine"\nprompt = "no question"\ncolour = "red"\n')
    with pytest.raises(BenchmarkError, match=r"(?s)mine\.toml: not valid.*source.*colour"):
        load_benchmark(str(tmp_path / "mine.toml"))


def test_every_shipped_suite_names_shipped_benchmarks() -> None:
    known = known_benchmarks()
    assert len(known) >= 17
    assert [name for name in known if definition_of(name).hub is None] == [
        *TINY_BASES,
        *(f"{base}-validation" for base in TINY_BASES),
    ]
    for file in SUITES.glob("*.toml"):
        suite = read_suite(file.stem)
        assert set(suite.protocols()) <= set(known)
        assert suite.source
    with pytest.raises(BenchmarkError, match=r"suite nosuch: .*evol-rl"):
        read_suite("nosuch")


def test_a_benchmark_s_sha256_is_that_of_its_questions(tmp_path: Path) -> None:
    file = tmp_path / "b.jsonl"
    file.write_text('{"id": 1, "problem": "p", "answer": 2}\n{"id": 2, "problem": "q", "answer": 3}\n')
    whole = load(str(file))
    file.write_text('{"id": 1,   "problem": "p", "answer": 2}\n\n{"id": 2, "problem": "q", "answer": 3}\n')
    assert load(str(file)).sha256 == whole.sha256
    sample = load(str(file), limit=1)
    assert (len(sample.items), sample.sha256 == whole.sha256) == (1, False)


def test_a_limit_draws_a_sample_over_all_levels_that_a_larger_one_contains() -> None:
    """The questions of the tiny world are sorted by their level, so the first 32 are all of the easiest."""
    whole = load("micro")
    small, large, all_of_them = (load("micro", limit=limit) for limit in (32, 64, len(whole.items)))
    levels = [item.level for item in whole.items]
    assert (len({*levels[:32]}), {item.level for item in small.items}) == (1, {*levels})
    assert {*small.items} < {*large.items}
    assert [*small.items] == [item for item in whole.items if item in small.items]
    assert load("micro", limit=32) == small
    assert (small.sampled_from, all_of_them.sampled_from, whole.sampled_from) == (len(whole.items), None, None)
    assert all_of_them.sha256 == whole.sha256


def test_a_run_s_benchmarks_are_its_own_the_suite_s_and_early_stopping_s() -> None:
    evaluation = {"also": ["aime24"], "suite": "scrl", "samples": 4}
    stopping = {"benchmark": "micro-validation"}
    config = CoEvolution.model_validate({"evaluation": evaluation, "early_stopping": stopping})
    protocols = evaluated_in(config)
    assert [*protocols] == [
        "micro",
        "aime24",
        "micro-validation",
        "aime25",
        "amc_83",
        "math500",
        "minerva",
        "gpqa_main",
    ]
    assert [protocols[name].samples for name in ("micro", "aime24", "math500")] == [4, 4, 16]
    assert protocols["math500"].sampling.top_p == 0.95


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("aime24", "questions/aime24.jsonl"),
        ("other/mine.toml", "other/mine.jsonl"),
        ("other/mine.csv", "other/mine.csv"),
        ("mine.jsonl", "mine.jsonl"),
    ],
)
def test_a_benchmark_s_file_is_expected_where_it_is_looked_for(
    name: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COEVO_BENCHMARKS", "questions")
    assert expected_file(name) == Path(file)
