"""Replay: score an iteration's stored votes with any of the Solver's methods, without training and without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Group as Tables
from rich.markup import escape
from rich.table import Table

from core.errors import CoevoError
from core.grading.grader import Grader
from core.methods import Method
from core.rollouts.embedding import hashed_embeddings
from core.rollouts.groups import make_groups
from core.rollouts.scoring import Outcome, outcome
from core.rollouts.strategies import skeleton_clusters
from core.statistics.estimates import share
from core.types import Group, LabelledQuestion
from orchestrator.pictures.canvas import as_file
from orchestrator.pictures.matrix import correlations
from storage import queries
from storage.rows import RolloutRow
from storage.session import Store
from storage.texts import RolloutText, read_texts, texts_path

_EXAMPLES = 5  # disagreements shown in the table; the JSON has all


class ReplayError(CoevoError):
    """An iteration that cannot be replayed; the message names the run and the iteration."""


@dataclass(frozen=True, slots=True)
class _Votes:
    """What is stored for the questions that the Solver was asked; the lists are in the same order."""

    questions: list[LabelledQuestion]
    rows: list[list[RolloutRow]]
    texts: list[list[str] | None]  # None for a question whose texts are not stored
    truths: list[str | None]  # the oracle's answers


def replay(
    store: Store, texts: Path, run: str, iteration: int, methods: Sequence[Method], kept: bool = False
) -> dict[str, Any]:
    """The labels and rewards of each method, how similar their advantages are, and where their labels differ.

    Methods that need a label get the stored pseudo-label; `supervised` gets the oracle's answer. Embeddings are hashed
    words and strategies are skeletons, both computed from the stored texts. If a method lacks a signal for every
    question, `skipped` says which; if it lacks one for some questions, it is replayed on the others. The votes are
    scored as if they had been sampled in training.

    Raises `ReplayError`, `StoreError`.
    """
    needs_texts = any(method.needs & {"embeddings", "clusters"} for method in methods)
    votes = _read_votes(store, texts if needs_texts else None, run, iteration, kept)
    with Grader() as grader:
        answers = [[row.answer for row in group] for group in votes.rows]
        stored_labels = [question.label.answer if question.label else None for question in votes.questions]
        groups_by_label = make_groups(answers, stored_labels, grader)
        groups_by_truth = make_groups(answers, votes.truths, grader)
        outcomes: dict[str, list[Outcome | None]] = {}
        skipped: dict[str, str] = {}
        for method in methods:
            groups = groups_by_truth if method.type == "supervised" else groups_by_label
            outcomes[method.type] = [_outcome(method, group, i, votes) for i, group in enumerate(groups)]
            if not any(outcomes[method.type]):
                skipped[method.type] = _reason_to_skip(method, min(map(len, answers), default=0))
        replayed = [name for name in outcomes if name not in skipped]
        figures = {name: _figures(outcomes[name], stored_labels, votes.truths, grader) for name in replayed}
        disagreements = [*_disagreements(votes, {name: outcomes[name] for name in replayed}, grader)]
    return {
        "run": run,
        "iteration": iteration,
        "over": "kept" if kept else "asked",
        "questions": len(votes.questions),
        "rollouts": sum(map(len, votes.rows)),
        "estimated_entropies": _estimated_entropies(votes),
        "methods": {**figures, **{name: {"skipped": reason} for name, reason in skipped.items()}},
        "advantage_correlation": {"methods": replayed, "matrix": _correlations([outcomes[name] for name in replayed])},
        "disagreements": disagreements,
    }


def _estimated_entropies(votes: _Votes) -> dict[str, Any]:
    """How many entropies are estimates, as vLLM's are, and the largest possible error of one of them, in nats."""
    errors = [row.entropy_error for group in votes.rows for row in group if row.entropy_error]
    return {"rollouts": len(errors), "greatest_error": max(errors, default=0.0)}


def _read_votes(store: Store, texts: Path | None, run: str, iteration: int, kept: bool) -> _Votes:
    with store.read() as session:
        oracle = queries.runs.config_of_run(session, run).audit.label
        labelled = queries.questions.labels_of(session, run, iteration, "kept" if kept else None)
        rows = queries.questions.rollouts_of(session, run, iteration)
        audited = queries.questions.oracle_labels_of(session, run, iteration, oracle) if oracle else []
    by_question = {key: list(group) for key, group in groupby(rows, key=lambda row: row.question_id)}
    questions = [
        question for question in labelled if question.label is not None and question.question_id in by_question
    ]
    if not questions:
        raise ReplayError(
            f"run {run}, iteration {iteration}: expected stored votes, found none: label_questions has not been done"
        )
    stored_texts: list[RolloutText] = []  # without texts, the methods that need them are skipped
    if texts is not None and texts_path(texts, run, iteration, "label_questions").exists():
        stored_texts = read_texts(texts_path(texts, run, iteration, "label_questions"))
    texts_by_id = {
        key: [text.text for text in group] for key, group in groupby(stored_texts, key=lambda text: text.question_id)
    }
    truths = {label.question_id: label.truth for label in audited}
    ids = [question.question_id for question in questions]
    return _Votes(
        questions, [by_question[i] for i in ids], [texts_by_id.get(i) for i in ids], [truths.get(i) for i in ids]
    )


def _outcome(method: Method, group: Group, index: int, votes: _Votes) -> Outcome | None:
    """What the method makes of the group; None if it lacks a signal that the method needs."""
    texts, rows = votes.texts[index], votes.rows[index]
    group = replace(group, question_id=votes.questions[index].question_id, seed=index)
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
        return outcome(group, method)
    except ValueError:  # the method's sets are larger than the group
        return None


def _reason_to_skip(method: Method, rollouts: int) -> str:
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
    outcomes: Sequence[Outcome | None],
    stored_labels: Sequence[str | None],
    truths: Sequence[str | None],
    grader: Grader,
) -> dict[str, Any]:
    replayed = [
        (outcome, label, truth)
        for outcome, label, truth in zip(outcomes, stored_labels, truths, strict=True)
        if outcome
    ]
    labels = [outcome.scored.label for outcome, _, _ in replayed]
    rewards = np.concatenate([outcome.scored.rewards for outcome, _, _ in replayed])
    learned = [outcome for outcome, _, _ in replayed if outcome.scored.learn]
    return {
        "questions": len(replayed),
        "labelled": _share(sum(label is not None for label in labels), len(labels)),
        "as_stored": _equal(zip(labels, (label for _, label, _ in replayed), strict=True), grader),
        "label_accuracy": _equal(zip(labels, (truth for _, _, truth in replayed), strict=True), grader),
        "dropped": _share(len(replayed) - len(learned), len(replayed)),
        "silent": _share(sum(not outcome.advantages.any() for outcome in learned), len(learned)),
        "reward": {
            "mean": float(rewards.mean()),
            "std": float(rewards.std()),
            "min": float(rewards.min()),
            "max": float(rewards.max()),
        },
    }


def _equal(pairs: Iterator[tuple[str | None, str | None]], grader: Grader) -> dict[str, Any] | None:
    """The share of equal pairs among those whose two sides are both present."""
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    equal = sum(comparison.verdict == "equal" for comparison in grader.compare_many(both))
    return _share(equal, len(both))


def _share(count: int, n: int) -> dict[str, Any] | None:
    figure = share(count, n)
    return None if figure is None else figure.as_json()


def _disagreements(
    votes: _Votes, outcomes: dict[str, list[Outcome | None]], grader: Grader
) -> Iterator[dict[str, Any]]:
    """The questions that two methods would label differently. No label counts as different from a label, but methods
    that label no question at all are left out."""
    outcomes = {
        name: of_method
        for name, of_method in outcomes.items()
        if any(outcome and outcome.scored.label for outcome in of_method)
    }
    for i, (question, truth) in enumerate(zip(votes.questions, votes.truths, strict=True)):
        labels = {name: outcome.scored.label for name, of_method in outcomes.items() if (outcome := of_method[i])}
        distinct = {label for label in labels.values() if label is not None}
        differ = len(distinct) > 1 and any(
            comparison.verdict != "equal"
            for comparison in grader.compare_many([(a, b) for a in distinct for b in distinct if a < b])
        )
        if differ or (distinct and None in labels.values()):
            yield {"question_id": question.question_id, "text": question.text, "truth": truth, "labels": labels}


def _correlations(outcomes: Sequence[Sequence[Outcome | None]]) -> list[list[float | None]]:
    """Pearson's r of the advantages of every two methods, over the rollouts of the groups that both learn from.

    None if there is no such group, or if one method gives all of these rollouts the same advantage.
    """

    def correlation(a: Sequence[Outcome | None], b: Sequence[Outcome | None]) -> float | None:
        both = [(x, y) for x, y in zip(a, b, strict=True) if x and y and x.scored.learn and y.scored.learn]
        if not both:
            return None
        x, y = (np.concatenate([pair[side].advantages for pair in both]) for side in (0, 1))
        return float(np.corrcoef(x, y)[0, 1]) if _varies(x) and _varies(y) else None

    return [[correlation(a, b) for b in outcomes] for a in outcomes]


def _varies(values: NDArray[np.float64]) -> bool:
    return bool(np.ptp(values) > 0)


def table(result: dict[str, Any]) -> Tables:
    """The result of `replay` as tables for a terminal."""
    title = (
        f"run {result['run']}, iteration {result['iteration']}: {result['questions']} questions {result['over']}, "
        f"{result['rollouts']} stored votes; 95% intervals"
    )
    if (estimated := result["estimated_entropies"])["rollouts"]:
        title += f"; entropies are estimates with an error of at most {estimated['greatest_error']:.3f} nats a token"
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
    correlations_table = Table("r", *names, title="correlation of advantages (Pearson)", box=SIMPLE_HEAD)
    for name, values in zip(names, result["advantage_correlation"]["matrix"], strict=True):
        correlations_table.add_row(name, *("" if value is None else f"{value:.2f}" for value in values))
    examples = Table("question", "truth", "labels", title=_examples_title(result), box=SIMPLE_HEAD)
    for example in result["disagreements"][:_EXAMPLES]:
        by_label: dict[str, list[str]] = {}  # label -> the methods that give it
        for name, label in example["labels"].items():
            by_label.setdefault("no label" if label is None else label, []).append(name)
        caption = "\n".join(f"{label}: {', '.join(methods)}" for label, methods in by_label.items())
        examples.add_row(*map(escape, (example["text"], example["truth"] or "", caption)))
    tables = [main, correlations_table, *([examples] if result["disagreements"] else [])]
    return Tables(*tables)


def _examples_title(result: dict[str, Any]) -> str:
    count = len(result["disagreements"])
    return f"{count} questions that the methods label differently" + (
        f", the first {_EXAMPLES}" if count > _EXAMPLES else ""
    )


def _percent(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return ""
    low, high = figure["ci95"]
    return f"{100 * figure['value']:.1f}% [{100 * low:.1f}, {100 * high:.1f}]\nn = {figure['n']}"


def write_picture(result: dict[str, Any], folder: Path) -> Path:
    """Write the correlations as a PNG into `folder` and return its path."""
    names, matrix = result["advantage_correlation"]["methods"], result["advantage_correlation"]["matrix"]
    title = f"{result['run']}, iteration {result['iteration']}: correlation of advantages, {result['rollouts']:,} votes"
    path = folder / f"{result['run']}-{result['iteration']}-replay.png"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_file(correlations(title, names, matrix)))
    return path
