"""Replay: the stored votes of an iteration under any of the Solver's methods, without training and without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Group as Stacked
from rich.markup import escape
from rich.table import Table

from core.errors import CoevoError
from core.grading.grader import Grader
from core.methods import Method
from core.rollouts.embedding import hashed_embeddings
from core.rollouts.groups import make_groups
from core.rollouts.scoring import Outcome, outcome
from core.rollouts.strategies import skeleton_clusters
from core.settings.parsing import parse_config
from core.statistics.estimates import share
from core.types import Group, LabelledQuestion
from orchestrator.report.canvas import as_png
from orchestrator.report.matrix import correlations
from storage import queries
from storage.rows import RolloutRow
from storage.session import Store
from storage.texts import RolloutText, read_texts, texts_path

_EXAMPLES = 5  # disagreements in the table; JSON has all


class ReplayError(CoevoError):
    """An iteration that cannot be replayed as asked."""


@dataclass(frozen=True, slots=True)
class _Votes:
    """What is stored of the questions that were asked, in their order."""

    questions: list[LabelledQuestion]
    rows: list[list[RolloutRow]]
    texts: list[list[str] | None]  # None where an iteration keeps none of a question
    truths: list[str | None]  # the oracle's own answers


def replay(
    store: Store, texts: Path, run: str, iteration: int, methods: Sequence[Method], kept: bool = False
) -> dict[str, Any]:
    """What each method would label and reward, how alike their advantages are, and where their labels differ.

    Labels that come with questions are the stored pseudo-labels, for `supervised` the oracle's answers. Embeddings are
    hashed words, strategies skeletons, both of stored texts. A method that lacks something says so under `skipped`;
    one that lacks texts of some questions is replayed on the others. All are called with this iteration's votes as if
    they had been sampled in training.

    Raises `ReplayError`, `StoreError`.
    """
    with_texts = any(method.needs & {"embeddings", "clusters"} for method in methods)
    votes = _stored(store, texts if with_texts else None, run, iteration, kept)
    with Grader() as grader:
        answers = [[row.answer for row in group] for group in votes.rows]
        stored = [question.label.answer if question.label else None for question in votes.questions]
        by_stored = make_groups(answers, stored, grader)
        by_truth = make_groups(answers, votes.truths, grader)
        outcomes: dict[str, list[Outcome | None]] = {}
        skipped: dict[str, str] = {}
        for method in methods:
            groups = by_truth if method.type == "supervised" else by_stored
            outcomes[method.type] = [_outcome(method, group, i, votes) for i, group in enumerate(groups)]
            if not any(outcomes[method.type]):
                skipped[method.type] = _lacking(method, min(map(len, answers), default=0))
        played = [name for name in outcomes if name not in skipped]
        figures = {name: _figures(outcomes[name], stored, votes.truths, grader) for name in played}
        apart = [*_disagreements(votes, {name: outcomes[name] for name in played}, grader)]
    return {
        "run": run,
        "iteration": iteration,
        "over": "kept" if kept else "asked",
        "questions": len(votes.questions),
        "rollouts": sum(map(len, votes.rows)),
        "estimated_entropies": _estimated(votes),
        "methods": {**figures, **{name: {"skipped": why} for name, why in skipped.items()}},
        "advantage_correlation": {"methods": played, "matrix": _correlations([outcomes[name] for name in played])},
        "disagreements": apart,
    }


def _estimated(votes: _Votes) -> dict[str, Any]:
    """The rollouts whose entropy is an estimate, as vLLM's are, and the most that one of them can be wrong by, nats."""
    errors = [row.entropy_error for group in votes.rows for row in group if row.entropy_error]
    return {"rollouts": len(errors), "greatest_error": max(errors, default=0.0)}


def _stored(store: Store, texts: Path | None, run: str, iteration: int, kept: bool) -> _Votes:
    with store.read() as session:
        oracle = parse_config(queries.runs.get_run(session, run).config, f"run {run}").audit.label
        labelled = queries.questions.labels_of(session, run, iteration, "kept" if kept else None)
        rows = queries.questions.rollouts_of(session, run, iteration)
        audited = queries.questions.oracle_labels_of(session, run, iteration, oracle) if oracle else []
    by_question = {key: list(group) for key, group in groupby(rows, key=lambda row: row.question_id)}
    questions = [
        question for question in labelled if question.label is not None and question.question_id in by_question
    ]
    if not questions:
        raise ReplayError(f"run {run}, iteration {iteration}: no votes are stored: label_questions has not been done")
    written: list[RolloutText] = []  # where the run keeps none, the methods that need them say so
    if texts is not None and texts_path(texts, run, iteration, "label_questions").exists():
        written = read_texts(texts, run, iteration, "label_questions")
    by_id = {key: [text.text for text in group] for key, group in groupby(written, key=lambda text: text.question_id)}
    truth = {label.question_id: label.truth for label in audited}
    ids = [question.question_id for question in questions]
    return _Votes(questions, [by_question[i] for i in ids], [by_id.get(i) for i in ids], [truth.get(i) for i in ids])


def _outcome(method: Method, group: Group, i: int, votes: _Votes) -> Outcome | None:
    """None where a signal is lacking."""
    texts, rows = votes.texts[i], votes.rows[i]
    if method.needs & {"embeddings", "clusters"} and texts is None:
        return None
    if "label" in method.needs and group.label is None:
        return None
    if "mean_entropy" in method.needs:
        entropies = [row.mean_entropy for row in rows]
        if None in entropies:
            return None
        group = replace(group, mean_entropy=np.array(entropies, dtype=np.float64))
    if "embeddings" in method.needs:
        group = replace(group, embeddings=hashed_embeddings(texts or []))
    if "clusters" in method.needs:
        group = replace(group, clusters=skeleton_clusters(texts or []))
    try:
        return outcome(group, method, seed=i)
    except ValueError:  # its sets are larger than the group
        return None


def _lacking(method: Method, rollouts: int) -> str:
    try:
        method.check_group_size(rollouts)
    except ValueError as error:
        return str(error)
    if method.needs & {"embeddings", "clusters"}:
        return "no texts are stored (rollout_text)"
    if "mean_entropy" in method.needs:
        return "no entropies are stored"
    return "no oracle's answers are stored" if method.type == "supervised" else "no labels are stored"


def _figures(
    outcomes: Sequence[Outcome | None], stored: Sequence[str | None], truths: Sequence[str | None], grader: Grader
) -> dict[str, Any]:
    played = [
        (outcome, label, truth) for outcome, label, truth in zip(outcomes, stored, truths, strict=True) if outcome
    ]
    labels = [outcome.scored.label for outcome, _, _ in played]
    rewards = np.concatenate([outcome.scored.rewards for outcome, _, _ in played])
    learned = [outcome for outcome, _, _ in played if outcome.scored.learn]
    return {
        "questions": len(played),
        "labelled": _share(sum(label is not None for label in labels), len(labels)),
        "as_stored": _equal(zip(labels, (label for _, label, _ in played), strict=True), grader),
        "label_accuracy": _equal(zip(labels, (truth for _, _, truth in played), strict=True), grader),
        "dropped": _share(len(played) - len(learned), len(played)),
        "silent": _share(sum(not outcome.advantages.any() for outcome in learned), len(learned)),
        "reward": {
            "mean": float(rewards.mean()),
            "std": float(rewards.std()),
            "min": float(rewards.min()),
            "max": float(rewards.max()),
        },
    }


def _equal(pairs: Iterator[tuple[str | None, str | None]], grader: Grader) -> dict[str, Any] | None:
    """How many of the pairs that have both sides are equal."""
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    equal = sum(comparison.verdict == "equal" for comparison in grader.compare_many(both))
    return _share(equal, len(both))


def _share(count: int, n: int) -> dict[str, Any] | None:
    figure = share(count, n)
    return None if figure is None else figure.as_json()


def _disagreements(
    votes: _Votes, outcomes: dict[str, list[Outcome | None]], grader: Grader
) -> Iterator[dict[str, Any]]:
    """The questions that two methods would label differently. Abstaining counts as different, except for a method that
    never labels."""
    outcomes = {name: all_of for name, all_of in outcomes.items() if any(one and one.scored.label for one in all_of)}
    for i, (question, truth) in enumerate(zip(votes.questions, votes.truths, strict=True)):
        labels = {name: outcome.scored.label for name, all_of in outcomes.items() if (outcome := all_of[i])}
        given = {label for label in labels.values() if label is not None}
        differ = len(given) > 1 and any(
            comparison.verdict != "equal"
            for comparison in grader.compare_many([(a, b) for a in given for b in given if a < b])
        )
        if differ or (given and None in labels.values()):
            yield {"question_id": question.question_id, "text": question.text, "truth": truth, "labels": labels}


def _correlations(played: Sequence[Sequence[Outcome | None]]) -> list[list[float | None]]:
    """Pearson's r of two methods' advantages over the rollouts of the groups that both learn from; None where one of
    them says the same of all."""

    def one(a: Sequence[Outcome | None], b: Sequence[Outcome | None]) -> float | None:
        both = [(x, y) for x, y in zip(a, b, strict=True) if x and y and x.scored.learn and y.scored.learn]
        if not both:
            return None
        x, y = (np.concatenate([pair[side].advantages for pair in both]) for side in (0, 1))
        return float(np.corrcoef(x, y)[0, 1]) if _varies(x) and _varies(y) else None

    return [[one(a, b) for b in played] for a in played]


def _varies(values: NDArray[np.float64]) -> bool:
    return bool(np.ptp(values) > 0)


def table(result: dict[str, Any]) -> Stacked:
    """The figures for a terminal."""
    title = (
        f"run {result['run']}, iteration {result['iteration']}: {result['questions']} questions {result['over']}, "
        f"{result['rollouts']} stored votes; 95% intervals"
    )
    if (estimated := result["estimated_entropies"])["rollouts"]:
        title += f"; entropies are estimates, wrong by at most {estimated['greatest_error']:.3f} nats a token"
    columns = ("method", "n", "labelled", "label as stored", "label right", "dropped", "no advantage", "reward")
    main = Table(*columns, title=title, box=SIMPLE_HEAD)
    for name, row in result["methods"].items():
        if "skipped" in row:
            main.add_row(name, "0", f"[yellow]skipped: {row['skipped']}[/]")
            continue
        shares = [_percent(row[key]) for key in ("labelled", "as_stored", "label_accuracy", "dropped", "silent")]
        reward = row["reward"]
        spread = f"{reward['mean']:.3f} sd {reward['std']:.3f}\n[{reward['min']:.3f}, {reward['max']:.3f}]"
        main.add_row(name, str(row["questions"]), *shares, spread)
    names = result["advantage_correlation"]["methods"]
    alike = Table("r", *names, title="how alike their advantages are (Pearson)", box=SIMPLE_HEAD)
    for name, values in zip(names, result["advantage_correlation"]["matrix"], strict=True):
        alike.add_row(name, *("" if value is None else f"{value:.2f}" for value in values))
    apart = Table("question", "truth", "labels", title=_apart_title(result), box=SIMPLE_HEAD)
    for example in result["disagreements"][:_EXAMPLES]:
        by_label: dict[str, list[str]] = {}
        for name, label in example["labels"].items():
            by_label.setdefault("no label" if label is None else label, []).append(name)
        caption = "\n".join(f"{label}: {', '.join(who)}" for label, who in by_label.items())
        apart.add_row(*map(escape, (example["text"], example["truth"] or "", caption)))
    return Stacked(main, alike, apart) if result["disagreements"] else Stacked(main, alike)


def _apart_title(result: dict[str, Any]) -> str:
    count = len(result["disagreements"])
    return f"{count} questions that they label differently" + (f", the first {_EXAMPLES}" if count > _EXAMPLES else "")


def _percent(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return ""
    low, high = figure["ci95"]
    return f"{100 * figure['value']:.1f}% [{100 * low:.1f}, {100 * high:.1f}]\nn = {figure['n']}"


def write_picture(result: dict[str, Any], folder: Path) -> Path:
    """The correlations as a PNG in `folder`."""
    names, matrix = result["advantage_correlation"]["methods"], result["advantage_correlation"]["matrix"]
    title = f"{result['run']}, iteration {result['iteration']}: correlation of advantages, {result['rollouts']:,} votes"
    path = folder / f"{result['run']}-{result['iteration']}-replay.png"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_png(correlations(title, names, matrix)))
    return path
