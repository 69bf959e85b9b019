"""`coevo methods`: scores groups of rollouts from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from core.methods import METHODS
from core.methods.ttrl import Ttrl
from orchestrator.cli import app
from orchestrator.cli.methods import summary_of


def coevo(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def rollout(answer: str | None, **more: Any) -> dict[str, Any]:
    return {"text": "" if answer is None else rf"\boxed{{{answer}}}", "answer": answer, **more}


def score(tmp_path: Path, method: str, *groups: dict[str, Any], settings: tuple[str, ...] = ()) -> Any:
    file = tmp_path / "groups.jsonl"
    file.write_text("\n".join(map(json.dumps, groups)) + "\n")
    options = [part for setting in settings for part in ("--set", setting)]
    done = coevo("methods", "score", method, "--groups", file, "--json", *options)
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_every_method_is_listed_with_its_paper() -> None:
    done = coevo("methods", "list", "--json")
    listed = json.loads(done.stdout)
    assert list(listed) == list(METHODS)
    assert listed["evol_rl"]["settings"]["clip_high"] == 0.28
    assert listed["evol_rl"]["needs"] == ["embeddings"]
    assert (listed["scrl"]["rollouts"], listed["scrl"]["trained_share"]) == (64, 0.5)
    table = coevo("methods", "list").stdout
    assert all(name in table for name in METHODS)


class Undescribed(Ttrl):  # has no docstring of its own
    pass


def test_a_method_of_another_package_is_not_described_by_its_parent_s_docstring() -> None:
    assert summary_of(Undescribed) == f"no description (from the package {__name__.partition('.')[0]})"
    assert summary_of(Ttrl) == (Ttrl.__doc__ or "").splitlines()[0]


def test_the_scores_of_two_groups_by_hand(tmp_path: Path) -> None:
    """RLOO of the rewards 1, 1, 0 is 1 - 1/2, 1 - 1/2, 0 - 1. The second group has no answer and is dropped."""
    scores, _ = score(
        tmp_path,
        "srt",
        {"question_id": "a", "rollouts": [rollout("7"), rollout("7.0"), rollout("8")]},
        {"question_id": "b", "rollouts": [rollout(None), rollout(None)]},
    )
    assert scores == [
        {
            "question_id": "a",
            "pseudo_label": "7",
            "rewards": [1, 1, 0],
            "advantages": pytest.approx([0.5, 0.5, -1]),
            "learn": True,
        },
        {"question_id": "b", "pseudo_label": None, "rewards": [0, 0], "advantages": [0, 0], "learn": False},
    ]


def test_a_rollout_that_the_grader_cannot_decide_on_has_no_reward(tmp_path: Path) -> None:
    group = {"question_id": "a", "label": "42", "rollouts": [*map(rollout, ["42", "42 is the answer", "41", "42"])]}
    [scores], _ = score(tmp_path, "grpo", group)
    assert scores["rewards"] == [1, None, 0, 1]
    assert scores["advantages"] == pytest.approx([1 / 3, 0, -2 / 3, 1 / 3])
    [scores], _ = score(tmp_path, "pass_at_n", group)
    assert scores["learn"] is False  # three are not enough for a set of four
    printed = coevo("methods", "score", "grpo", "--groups", tmp_path / "groups.jsonl").stdout.splitlines()
    assert printed[3].strip() == "undecided"


def test_signals_are_read_from_the_file(tmp_path: Path) -> None:
    group = {
        "question_id": "a",
        "label": "7",
        "rollouts": [rollout("7", cluster=1), rollout("8", cluster=1), rollout("8", cluster=2)],
    }
    [scores], notes = score(tmp_path, "poly_epo", group, settings=("set_size=2",))
    assert scores["advantages"] == pytest.approx([1 / 8, -1 / 8, 0])
    assert notes == ""
    entropies = {"question_id": "a", "rollouts": [rollout("7", mean_entropy=h) for h in (0.1, 0.3)]}
    [scores], _ = score(tmp_path, "scrl", entropies)
    assert scores["rewards"] == pytest.approx([1, 1])


def test_missing_signals_are_computed_and_named(tmp_path: Path) -> None:
    texts = [r"1 + 1 = 2 \boxed{2}", r"2 \boxed{2}", r"4 - 1 = 3 \boxed{3}"]
    group = {"question_id": "a", "label": "2", "rollouts": [{"text": text} for text in texts]}
    [scores], notes = score(tmp_path, "evol_rl", group)
    assert "embeddings: missing in the file, so hashed words" in notes
    assert min(scores["rewards"][:2]) >= 0.5
    [scores], notes = score(tmp_path, "grpo_div", group)
    assert "clusters: missing in the file, so skeletons" in notes
    assert scores["rewards"] == pytest.approx([1.5, 1.5, 0.5])  # the three responses have three skeletons


def question(*rollouts: str, more: str = "") -> str:
    return f'{{"question_id": "a", {more}"rollouts": [{", ".join(rollouts)}]}}'


SEVEN = '{"answer": "7"}'


@pytest.mark.parametrize(
    ("method", "line", "named"),
    [
        ("grop", "{}", "method 'grop'"),
        ("ttrl", "{", "line 1: not JSON"),
        ("ttrl", "[]", "line 1: the line"),
        ("ttrl", question(), "line 1: rollouts"),
        ("ttrl", question('{"answer": 7}'), "line 1: rollouts.0.answer"),
        ("ttrl", "\n", "expected at least one group"),
        ("grpo", question(SEVEN), "question a: label"),
        ("scrl", question(SEVEN), "rollouts.0.mean_entropy"),
        ("scrl", question('{"mean_entropy": NaN}'), "line 1: rollouts.0.mean_entropy"),
        ("evol_rl", question('{"embedding": [1]}', '{"embedding": [1, 2]}'), "question a: rollouts.embedding"),
        ("pass_at_n", question(SEVEN, more='"label": "7", '), "question a: set_size"),
    ],
)
def test_a_problem_in_the_file_is_named_without_a_traceback(tmp_path: Path, method: str, line: str, named: str) -> None:
    file = tmp_path / "groups.jsonl"
    file.write_text(line)
    done = coevo("methods", "score", method, "--groups", file, "--json")
    assert (done.exit_code, done.stdout) == (1, "")
    assert named in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    done = coevo("methods", "score", "ttrl", "--groups", tmp_path / "none.jsonl")
    assert done.exit_code == 1
    assert "none.jsonl: cannot be read" in done.stderr
