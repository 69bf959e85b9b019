"""`coevo evaluate`: which models and benchmarks it takes, and what it prints. A fake service answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from core.settings.evaluation import Protocol
from core.settings.training import Sampling
from core.types import GREEDY, Checkpoint, evaluation_id
from orchestrator.evaluation.manifest import key_of, manifest_of
from orchestrator.evaluation.models import Model, find_model
from orchestrator.installation.home import MICRO_MODEL, Home
from orchestrator.question_sets.benchmarks import SAMPLE_SEED, load
from services.comparison.models import compare_models
from services.inference.engines.base import Prompt
from storage import queries
from storage.errors import NotThere, StoreError
from storage.files.checkpoints import digest, manifest, verify
from storage.files.texts import evaluation_path, read_texts
from storage.session import Store
from tests.commands import coevo, refusal
from tests.fake_service import fake_service
from tests.synthetic_run import create, evaluate, held_out

pytestmark = pytest.mark.usefixtures("home")


def evaluated(*arguments: object) -> Result:
    return coevo("evaluate", *arguments)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    file = tmp_path / "sums.jsonl"
    rows = [{"id": i, "problem": f"What is {i} + 1?", "answer": i + 1, "level": 1 + i % 2} for i in range(6)]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def answer(_: int, body: dict[str, Any]) -> tuple[int, Any]:
    """Right greedily; when sampled, right for an even seed and cut off for an odd one."""
    number = int(next(re.finditer(r"\d+", body["messages"][-1]["content"]))[0])
    is_right = body["temperature"] == 0 or body["seed"] % 2 == 0
    text = rf"\boxed{{{number + 1}}}" if is_right else "hm"
    choice = {"message": {"content": text}, "finish_reason": "stop" if is_right else "length"}
    return 200, {"choices": [choice], "usage": {"completion_tokens": 7}}


@pytest.fixture
def service() -> Iterator[tuple[str, list[Any]]]:
    with fake_service(answer) as (described, requests):
        yield described.url, requests


def test_a_url_is_asked_and_its_answers_are_stored(
    home: Home, sqlite: Store, questions: Path, service: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, requests = service
    monkeypatch.setenv("THEIR_KEY", "secret")
    arguments = (url, str(questions), "--model", "m", "--samples", "2", "--max-tokens", "50", "--json")
    result = evaluated(*arguments, "--key-variable", "THEIR_KEY")
    [figures] = json.loads(result.stdout)
    evaluation = figures["evaluation"]
    assert (evaluation["model"], evaluation["benchmark"]) == (f"{url}#m", str(questions))
    # The two seeds of a question follow each other, so one is even.
    assert (figures["pass_at_1"]["value"], figures["greedy"]["value"], figures["truncated"]["value"]) == (0.5, 1, 0.5)
    assert [point["k"] for point in figures["curve"]] == [1, 2]
    assert figures["curve"][1]["pass_at_k"]["value"] == figures["curve"][1]["maj_at_k"]["value"] == 1
    assert (figures["pass_at_1"]["n"], figures["samples"], figures["tokens"]) == (6, 2, 126)
    assert evaluation["finished_at"] is not None
    assert {*figures["by_level"]} == {"1", "2"}
    recorded = evaluation["manifest"]
    assert recorded["model"] == {"url": url, "model": "m"}
    assert (recorded["benchmark"]["questions"], recorded["decoding"]["sampling"]["max_tokens"]) == (6, 50)
    assert "secret" not in result.stdout
    assert len(requests) == 19  # a greedy one first, which the service might refuse
    path, body, authorization = requests[1]
    assert (path, authorization) == ("/v1/chat/completions", "Bearer secret")
    assert (body["model"], body["max_tokens"]) == ("m", 50)
    # The same command asks nothing again; another number of samples is another evaluation.
    assert json.loads(evaluated(*arguments, "--key-variable", "THEIR_KEY").stdout) == [figures]
    assert len(requests) == 19
    evaluated(url, questions, "--model", "m", "--samples", "0")
    assert len(requests) == 26
    with sqlite.read() as session:
        greedy, first = queries.evaluations.list_evaluations(session)
        assert (first.id, first.run) == (evaluation["id"], None)
        answers = queries.evaluations.answers_of(session, first.id, ["3"])
        verdicts = {row.sample_index: (row.verdict, row.finish_reason) for row in answers}
        assert verdicts.pop(GREEDY) == ("equal", "stop")
        assert {*verdicts.values()} == {("equal", "stop"), (None, "length")}
        assert {row.sample_index for row in queries.evaluations.answers_of(session, greedy.id)} == {GREEDY}
    texts = read_texts(evaluation_path(home.texts, first.id), ["3"])
    assert sorted(text.text for text in texts) == [r"\boxed{4}", r"\boxed{4}", "hm"]


def test_only_the_most_likely_tokens_are_sampled_from_if_that_is_asked_for(
    questions: Path, service: tuple[str, list[Any]]
) -> None:
    url, requests = service
    arguments = (url, questions, "--model", "m", "--samples", "1", "--json")
    [every], [cut] = (json.loads(evaluated(*arguments, *more).stdout) for more in ((), ("--top-k", "20")))
    asked = [(body["temperature"], body.get("top_k")) for _, body, _ in requests]
    assert {*asked[:13]} == {(1.0, None), (0, None)}
    assert {*asked[13:]} == {(1.0, 20), (0, None)}  # the most likely token is the greedy answer's anyway
    assert cut["evaluation"]["manifest"]["decoding"]["sampling"]["top_k"] == 20
    assert cut["evaluation"]["id"] != every["evaluation"]["id"]


def test_the_table_has_each_benchmark_with_intervals(
    questions: Path, service: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    result = evaluated(service[0], questions, "micro", "--model", "m", "--samples", "2", "--limit", "4")
    lines = result.stdout.splitlines()
    [sums] = [line.split() for line in lines if "sums.jsonl" in line]
    assert sums == ["sums.jsonl", "4", "2", "50.0", "100.0", "100.0", "100.0", "50%", "50%"]
    [micro] = [line.split() for line in lines if "micro" in line]
    assert micro[1:3] == ["4", "2"]
    assert "28.3–100.0" in result.stdout  # the interval for 4 of 4
    assert "4 of 4 questions of micro" in result.stderr
    assert "by the majority's share" not in result.stdout


@pytest.mark.parametrize(
    ("samples", "columns"), [(2, ["n", "k", "pass@1", "greedy", "maj@k", "pass@k"]), (0, ["n", "greedy"])]
)
def test_the_table_fits_a_terminal_of_80_columns(
    questions: Path, service: tuple[str, list[Any]], samples: int, columns: list[str]
) -> None:
    printed = coevo("evaluate", service[0], questions, "--model", "m", "--samples", samples, COLUMNS="80").stdout
    lines = printed.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in printed
    [head] = [line.split() for line in lines if "benchmark" in line]
    assert [name for name in head if name in columns] == columns
    assert any(line.split()[:1] == ["sums.json"] or "sums.jsonl" in line for line in lines)  # the name may fold


def test_accuracy_by_the_majority_s_share_is_a_table_that_can_be_asked_for(
    questions: Path, service: tuple[str, list[Any]]
) -> None:
    """All answers are right. One of two replies has none, so the majority has all answers and half of the replies."""
    printed = evaluated(service[0], questions, "--model", "m", "--samples", "2", "--by-majority-share").stdout
    _, table = printed.split("sums.jsonl: percent right, by the majority's share")
    rows = {row[0]: row[1:] for row in map(str.split, table.splitlines()) if row and row[0].endswith("%")}
    assert rows["50%"][:3] + rows["50%"][-2:] == ["6", "100.0", "47.6–100.0", "100.0", "47.6–100.0"]
    assert rows["100%"][:2] + rows["100%"][-2:] == ["6", "100.0", "0.0", "0.0–52.4"]


@pytest.mark.parametrize(
    ("options", "words"), [((), "services"), (("--applications", "nosuch"), "serving.applications: ")]
)
def test_a_folder_that_cannot_be_served_is_refused(sqlite: Store, options: tuple[str, ...], words: str) -> None:
    assert words in refusal("evaluate", MICRO_MODEL, "micro", *options)
    with sqlite.read() as session:
        assert queries.evaluations.list_evaluations(session) == []


def reasoning(_: int, body: dict[str, Any]) -> tuple[int, Any]:
    """As OpenAI's reasoning models, which have one temperature only."""
    if body.get("temperature") not in (None, 1):
        return 400, {"error": {"message": "Unsupported value: 'temperature' does not support 0 with this model."}}
    return answer(0, body)


def test_a_service_that_refuses_temperature_0_is_evaluated_without_greedy_answers(
    home: Home, sqlite: Store, questions: Path
) -> None:
    with fake_service(reasoning) as (described, requests):
        arguments = (described.url, questions, "--model", "m", "--temperature", "1", "--samples")
        refused = refusal("evaluate", *arguments, "0")
        assert "samples: expected at least 1" in refused
        assert "does not support 0" in refused
        with sqlite.read() as session:
            assert queries.evaluations.list_evaluations(session) == []
        assert len(requests) == 1
        requests.clear()
        [figures] = json.loads(evaluated(*arguments, "2", "--json").stdout)
        assert (figures["greedy"], figures["pass_at_1"]["value"], figures["pass_at_1"]["n"]) == (None, 0.5, 6)
        assert figures["evaluation"]["manifest"]["decoding"]["greedy"] is False
        assert len(requests) == 1 + 6 * 2
        assert "50.0" in evaluated(*arguments, "2").stdout
        assert len(requests) == 1 + 6 * 2
    key = figures["evaluation"]["id"]
    assert len(read_texts(evaluation_path(home.texts, key), ["3"])) == 2
    with sqlite.read() as session:
        assert {result.greedy_correct for result in queries.evaluations.results_of(session, key)} == {None}
        assert {answer.sample_index for answer in queries.evaluations.answers_of(session, key)} == {0, 1}
        compared = compare_models(session, [f"{described.url}#m"], {str(questions): None})
        assert compared.rows[0].cells[str(questions)].figure.value == 0.5
        with pytest.raises(StoreError, match="temperature 0"):
            compare_models(session, [f"{described.url}#m"], {str(questions): None}, ["greedy"])


def test_a_service_that_answers_something_else_is_named(questions: Path) -> None:
    with fake_service(lambda _n, _body: (200, {"error": "out of money"})) as (described, _):
        refused = refusal("evaluate", described.url, questions, "--model", "m")
    assert 'HTTP 200 with an error: {"error": "out of money"}' in refused


def test_a_run_s_checkpoints_are_named_by_iteration_base_and_best(home: Home, sqlite: Store) -> None:
    with sqlite.write() as session:
        create(session, "r")
        for t, right in enumerate([2, 6, 4]):
            if t:
                solver = Checkpoint(f"r/solver/{t}", "r", "solver", t, 1, f"/c/{t}", f"{t}" * 64, "r/base/0")
                queries.checkpoints.add_checkpoint(session, solver, {})
            evaluate(session, "r", t, held_out([right] * 4, [1] * 4, [1] * 4), took=1)
    names = {which: find_model(home, sqlite, f"r:{which}", None, None) for which in ("base", "0", "2", "best")}
    expected = {"base": "r/base/0", "0": "r/base/0", "2": "r/solver/2", "best": "r/solver/1"}
    assert {which: model.name for which, model in names.items()} == expected
    assert names["2"].identity == {"checkpoint": "r/solver/2", "sha256": "2" * 64}
    assert names["2"].checkpoint == "r/solver/2"
    with sqlite.write() as session:
        create(session, "new")
    with pytest.raises(NotThere, match="new:best"):
        find_model(home, sqlite, "new:best", None, None)


def test_another_engine_makes_another_evaluation() -> None:
    benchmark, models = load("micro", limit=1), [Model("m", {"url": "u"}, {"name": name}, None) for name in ("a", "b")]
    keys = {evaluation_id(*key_of(model, benchmark, Protocol(), seed)) for model in models for seed in (0, 1)}
    assert len(keys) == 4


def test_the_manifest_says_what_a_sample_was_drawn_from() -> None:
    whole, sample = (
        manifest_of({}, {}, load("micro", limit=limit), Protocol(), seed=3)["benchmark"] for limit in (0, 4)
    )
    assert (sample["questions"], sample["sampled_from"], sample["sample_seed"]) == (4, whole["questions"], SAMPLE_SEED)
    assert "sampled_from" not in whole


def test_a_url_gets_a_top_k_only_if_there_is_one(home: Home, sqlite: Store) -> None:
    """OpenAI's API does not know it and refuses a request that has it."""
    question = {"role": "user", "content": "What is 1 + 1?"}
    prompts = [Prompt((question,), 0, 1, Sampling(top_k=top_k)) for top_k in (None, 40)]
    with fake_service(answer) as (described, requests):
        model = find_model(home, sqlite, described.url, None, described)
        with model.serve(print) as ask, ask([prompts[:1], prompts[1:]]) as replies:
            assert len(list(replies)) == 2
    assert {body.get("top_k", "none") for _, body, _ in requests} == {"none", 40}


def test_a_folder_is_served_from_links_that_are_verified(home: Home, sqlite: Store) -> None:
    sha256 = digest(manifest(MICRO_MODEL))
    for _ in range(2):
        model = find_model(home, sqlite, str(MICRO_MODEL), None, None)
    assert (model.name, model.checkpoint) == (str(MICRO_MODEL), None)
    assert model.identity == {"folder": str(MICRO_MODEL), "sha256": sha256}
    assert model.engine["name"] == "embedded"
    [linked] = (home.work / "_models").iterdir()
    verify(linked, sha256)
    assert all(path.is_symlink() for path in linked.glob("*.safetensors"))
