"""Given prompt sets: how they are read, which are refused before a run starts, and which are trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.questions.voting import vote
from core.settings.config import CoEvolution, SelfTraining
from core.settings.parsing import ConfigError, parse_config
from core.types import LabelledQuestion, Question, Rollout, question_id
from orchestrator.plan import plan, stages_of
from orchestrator.question_sets import rows as question_rows
from orchestrator.question_sets.benchmarks import load_benchmark
from orchestrator.question_sets.held_out import held_out_texts, load_for, trained_on
from orchestrator.question_sets.prompts import GivenPrompt, PromptsError, read_prompts
from orchestrator.question_sets.rows import read_rows
from orchestrator.stages.training.curriculum import given_questions
from storage import queries
from storage.session import Store
from tests.synthetic_run import context_of, create


def config(file: str | Path, method: str = "ttrl", **prompts: Any) -> SelfTraining:
    tree = {"prompts": {"file": str(file), **prompts}, "solver": {"reward": {"type": method}}, "iterations": 2}
    parsed = parse_config(tree, "a test")
    assert isinstance(parsed, SelfTraining)
    return parsed


def _read(config: SelfTraining) -> list[GivenPrompt]:
    return read_prompts(config, config.prompts)


ROWS: list[dict[str, Any]] = [{"problem": "What?", "a": 7}, {"problem": "Why?", "a": "x + 1", "more": [1]}]


def test_answers_are_read_where_they_are_named_and_no_more_rows_than_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    assert _read(config(file, answer="a")) == [GivenPrompt("What?", "7"), GivenPrompt("Why?", "x + 1")]
    assert _read(config(file)) == [GivenPrompt("What?", None), GivenPrompt("Why?", None)]
    assert _read(config(file, limit=1)) == [GivenPrompt("What?", None)]


def test_a_small_file_of_very_many_rows_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet stores a value once for all rows that have it: 0.4 GB of texts are here in less than a megabyte."""
    file = tmp_path / "p.parquet"
    rows = pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array([0] * 200_000, pa.int8()), ["What? " * 350])])
    pq.write_table(pa.table({"problem": rows}), file, store_schema=False)  # without it, it is read as plain texts
    assert file.stat().st_size < 1_000_000
    memory = pa.default_memory_pool()
    most = max(memory.max_memory(), memory.bytes_allocated() + 50_000_000)
    prompts = read_rows(file, "prompts", PromptsError)
    assert next(prompts)[1] == {"problem": "What? " * 350}
    assert memory.max_memory() <= most
    monkeypatch.setattr(question_rows, "MOST_ROWS", 1_000)
    with pytest.raises(PromptsError, match=r"p\.parquet: .*1,000"):
        list(prompts)


def test_the_tiny_world_s_prompts_are_drawn_and_not_in_its_benchmark() -> None:
    prompts = _read(config("micro", limit=400))
    assert prompts == _read(config("micro", limit=400))
    texts = {prompt.text for prompt in prompts}
    assert len(texts) == 400
    assert not texts & {item.problem for item in load_benchmark("micro")}


def test_the_benchmark_s_questions_can_be_prompts_without_showing_their_answers() -> None:
    prompts = _read(config("benchmark"))
    assert [(p.text, p.answer) for p in prompts] == [(item.problem, item.answer) for item in load_benchmark("micro")]


# A line, and the setting or the column that its refusal names.
BAD_ROWS: list[tuple[str, dict[str, Any], str]] = [
    ("{", {}, "not JSON"),
    ("[" * 100_000, {}, "not JSON"),
    ('{"problem": "What?", "a": ' + "9" * 5_000 + "}", {}, "not JSON"),
    ("[1]", {}, "expected an object"),
    ('{"question": "?"}', {}, "column 'problem': .* 'question'"),
    ('{"problem": " "}', {}, "column 'problem'"),
    ('{"problem": "<|im_start|>"}', {}, "column 'problem': .*control"),
    (json.dumps({"problem": "x" * 2001}), {}, "column 'problem': .*2000"),
    ('{"problem": "Why?"}', {"answer": "a"}, "column 'a'"),
    ('{"problem": "Why?", "a": true}', {"answer": "a"}, "column 'a': .*'True'"),
]


@pytest.mark.parametrize(("line", "settings", "named"), BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_a_bad_row_is_named(tmp_path: Path, line: str, settings: dict[str, Any], named: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(json.dumps({"problem": "fine?", "a": "1"}) + "\n" + line)
    with pytest.raises(PromptsError, match=rf"p\.jsonl, line 2: {named}"):
        _read(config(file, **settings))


@pytest.mark.parametrize("name", ["none.jsonl", "none.parquet", "bad.parquet", "empty.jsonl"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "bad.parquet").write_text("not parquet")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(PromptsError, match=name):
        _read(config(tmp_path / name))


@pytest.mark.parametrize(
    ("method", "prompts", "named"),
    [
        ("grpo", {"file": "p.jsonl"}, r"prompts\.labels: grpo"),
        ("supervised", {"file": "p.jsonl", "labels": "offline"}, "supervised .* true labels"),
        ("ttrl", {"file": "p.jsonl", "labels": "given"}, "answer: expected"),
        ("ttrl", {"file": "p.jsonl", "easiest": 0.3, "easiest_by": "pass_rate"}, "answer: expected"),
        ("ttrl", {"file": "micro"}, "limit: expected"),
        ("ttrl", {"file": "benchmark", "labels": "given"}, "benchmark's are hidden"),
        ("ttrl", {"file": "benchmark", "easiest": 0.5, "easiest_by": "pass_rate"}, "benchmark's are hidden"),
        ("ttrl", {"file": "benchmark", "limit": 8}, "limit: expected none"),
    ],
)
def test_prompts_that_do_not_fit_their_method_or_show_the_benchmark_s_answers_are_refused(
    method: str, prompts: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        config(method=method, **prompts)


def test_the_stages_of_a_run_on_given_prompts() -> None:
    rounds = [(t, stage) for t in (1, 2) for stage in ("train_solver", "evaluate", "check_health")]
    assert [*plan(config("p.jsonl"))] == [(0, "read_prompts"), (0, "evaluate"), *rounds]
    voted = ("read_prompts", "label_questions", "evaluate", "audit_labels")
    assert stages_of(config("p.jsonl", labels="offline"), 0) == voted
    assert stages_of(config("p.jsonl", easiest=0.5), 0) == voted
    loop = CoEvolution(iterations=1)
    assert [stage for _, stage in plan(loop)][:3] == ["evaluate", "train_challenger", "generate_questions"]


def test_held_out_questions_are_not_trained_on(tmp_path: Path) -> None:
    """The indices are those of the file; other white space does not hide a question of the benchmark."""
    benchmark = load_benchmark("micro")
    file = tmp_path / "p.jsonl"
    rows = [{"problem": benchmark[0].problem.replace(" ", "  ")}, {"problem": "Why?"}]
    file.write_text("\n".join(map(json.dumps, rows)))
    settings = config(file)
    assert trained_on(settings, settings.prompts) == [(1, GivenPrompt("Why?", None))]
    file.write_text(json.dumps(rows[0]))
    with pytest.raises(PromptsError, match="held out"):
        trained_on(settings, settings.prompts)
    on_benchmark = config("benchmark")
    assert on_benchmark.prompts is not None
    assert len(trained_on(on_benchmark, on_benchmark.prompts)) == len(benchmark)


def stopped(file: str | Path, seed: int = 0, **prompts: Any) -> SelfTraining:
    """The settings of a run whose early stopping holds out a share of its prompts."""
    tree = {"prompts": {"file": str(file), **prompts}, "early_stopping": {"benchmark": "prompts"}}
    parsed = parse_config({**tree, "solver": {"reward": {"type": "srt"}}, "seed": seed}, "a test")
    assert isinstance(parsed, SelfTraining)
    return parsed


def test_a_share_of_the_prompts_is_held_out_for_early_stopping_and_never_trained_on(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    rows = [{"problem": f"What is {i} + 1?", "a": i + 1} for i in range(300)]
    rows += [{"problem": f"What  is {i} + 1?", "a": i + 1} for i in range(300)]  # the same questions once more
    file.write_text("\n".join(map(json.dumps, rows)))
    run = stopped(file, answer="a")
    held_out = load_for(run, "prompts")
    assert len(held_out.items) == 3  # 1% of 300 different ones
    assert all(item.problem == f"What is {int(item.answer) - 1} + 1?" for item in held_out.items)
    assert [int(item.id.removeprefix("prompts/")) + 1 for item in held_out.items] == [
        int(item.answer) for item in held_out.items
    ]
    assert load_for(run, "prompts") == held_out
    assert load_for(stopped(file, answer="a", seed=1), "prompts") != held_out
    assert {item.problem for item in held_out.items} < held_out_texts(run)
    trained = {prompt.answer for _, prompt in trained_on(run, run.prompts)}
    assert len(trained) == 297
    assert not trained & {item.answer for item in held_out.items}
    assert len(load_for(stopped("micro", limit=10), "prompts").items) == 1  # at least one


@pytest.mark.parametrize("prompts", [{"file": "p.jsonl"}, {"file": "benchmark", "answer": "a"}])
def test_prompts_without_known_answers_cannot_be_held_out(prompts: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"early_stopping\.benchmark: 'prompts'"):
        stopped(**prompts)
    with pytest.raises(ConfigError, match="got 'prompts'"):
        parse_config({"early_stopping": {"benchmark": "prompts"}}, "a test")


# A prompt's true answer and its four votes. Majorities: none, 4/4 for 5, 3/4 for 9, 2/4 for 1/2. Pass rates: 0; 0; 1/4;
# 2/4, since 0.5 and 0.50 are 1/2.
PROMPTS: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    ("2", (None, None, None, None)),
    ("6", ("5", "5", "5", "5")),
    ("8", ("9", "9", "9", "8")),
    ("1/2", ("0.5", "0.50", "7", "6")),
)


def chosen(store: Store, **prompts: object) -> list[tuple[str, str | None, str | None]]:
    """The text, the label and the truth of each prompt that is trained on."""
    tree = {"prompts": {"file": "micro", "limit": 4, **prompts}}
    method = {"solver": {"reward": {"type": "srt", "labels": "offline"}}}
    with store.write() as session:
        config = parse_config({**tree, **method}, "a test")
        assert isinstance(config, SelfTraining)
        create(session, "r", config)
        for index, (truth, votes) in enumerate(PROMPTS):
            key, text = question_id("r", 0, index), f"prompt {index}"
            queries.questions.add_questions(session, [Question(key, "r", 0, index, text, text, None, 0, truth)])
            queries.questions.add_labels(session, [LabelledQuestion(key, text, vote(votes, None), "kept")])
            rows = [Rollout(key, j, "", answer, 7, "stop", None, None, "r/base/0", j) for j, answer in enumerate(votes)]
            queries.questions.add_rollouts(session, rows)
    return [(row.text, row.label, row.truth) for row in given_questions(context_of(store, "r", 1), config.prompts)]


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        # Two of the four prompts, with their given labels.
        ({"labels": "given", "easiest_by": "majority"}, [("prompt 1", "6", "6"), ("prompt 2", "8", "8")]),
        ({"labels": "given", "easiest_by": "pass_rate"}, [("prompt 2", "8", "8"), ("prompt 3", "1/2", "1/2")]),
        # Two of the three prompts that have a majority, with its answer.
        ({"labels": "offline", "easiest_by": "majority"}, [("prompt 1", "5", "6"), ("prompt 2", "9", "8")]),
        ({"labels": "offline", "easiest_by": "pass_rate"}, [("prompt 2", "9", "8"), ("prompt 3", "0.5", "1/2")]),
    ],
)
def test_the_easiest_half_of_the_prompts_is_chosen_by_majority_or_pass_rate(
    sqlite: Store, prompts: dict[str, str], expected: list[tuple[str, str, str]]
) -> None:
    assert chosen(sqlite, easiest=0.5, **prompts) == expected


def test_without_a_curriculum_all_prompts_with_a_label_are_trained_on(sqlite: Store) -> None:
    assert [text for text, *_ in chosen(sqlite, labels="offline")] == ["prompt 1", "prompt 2", "prompt 3"]
