"""Replay: score an iteration's stored votes with any of the Solver's methods, without training and without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group as Tables
from rich.markup import escape
from rich.table import Table

from core.errors import CoevoError
from core.grading.grader import Grader
from core.methods import Method
from core.rollouts.groups import make_groups
from core.rollouts.scoring import ScoredGroup, outcome
from core.settings.serving import Signals
from core.statistics.estimates import share
from core.types import Group, LabelledQuestion
from orchestrator.analysis.gates import replayed_gates
from services.inference.signals import with_signals
from storage import queries
from storage.files.texts import read_texts, texts_path
from storage.rows import RolloutRow
from storage.session import Store

_EXAMPLES = 5  # disagreements shown in the table; the JSON has all


class ReplayError(CoevoError):
    """An iteration that cannot be replayed; the message names the run and the iteration."""


@dataclass(frozen=True, slots=True)
class _Voted:
    """What is stored of a question that the Solver was asked."""

    question: LabelledQuestion
    votes: list[RolloutRow]
    texts: list[str] | None  # None if they are not stored
    truth: str | None  # the oracle's answer

    @property
    def label(self) -> str | None:
        return self.question.label.answer if self.question.label else None


def replay(
    store: Store, texts: Path, run: str, iteration: int, methods: Sequence[Method], kept: bool = False
) -> dict[str, Any]:
    """The labels and rewards of each method, how similar their advantages are, and where their labels differ.

    Methods that need a label get the stored pseudo-label; `supervised` gets the oracle's answer. Embeddings are hashed
    words and strategies are skeletons, both computed from the stored texts. If a method lacks a signal for every
    question, `skipped` says which; if it lacks one for some questions, it is replayed on the others. The votes are
    scored as if they had been sampled in training.

    Of a run with a Challenger, `gates` has what gates would have admitted (`orchestrator.analysis.gates`).

    Raises `ReplayError`, `StoreError`.
    """
    needs_texts = any(method.needs & {"embeddings", "clusters"} for method in methods)
    voted = _read(store, texts if needs_texts else None, run, iteration, kept)
    answers = [[vote.answer for vote in row.votes] for row in voted]
    with Grader() as grader:
        by_label = make_groups(answers, [row.label for row in voted], grader)
        by_truth = make_groups(answers, [row.truth for row in voted], grader)
        outcomes: dict[str, list[ScoredGroup | None]] = {}
        skipped: dict[str, Any] = {}
        for method in methods:
            groups = by_truth if method.type == "supervised" else by_label
            pairs = enumerate(zip(groups, voted, strict=True))
            replayed = [_outcome(method, replace(group, seed=i), row) for i, (group, row) in pairs]
            if any(replayed):
                outcomes[method.type] = replayed
            else:
                skipped[method.type] = {"skipped": _reason_to_skip(method, min(map(len, answers), default=0))}
        figures = {name: _figures(of_method, voted, grader) for name, of_method in outcomes.items()}
        disagreements = [*_disagreements(voted, outcomes, grader)]
    with store.read() as session:
        gates = replayed_gates(session, run, iteration, queries.runs.config_of_run(session, run))
    errors = [vote.entropy_error for row in voted for vote in row.votes if vote.entropy_error]
    return {
        "run": run,
        "iteration": iteration,
        "over": "kept" if kept else "asked",
        "questions": len(voted),
        "rollouts": sum(map(len, answers)),
        # How many entropies are estimates, as vLLM's are, and the largest possible error of one of them, in nats.
        "estimated_entropies": {"rollouts": len(errors), "greatest_error": max(errors, default=0.0)},
        "methods": {**figures, **skipped},
        "advantage_correlation": {"methods": [*outcomes], "matrix": _correlations([*outcomes.values()])},
        "disagreements": disagreements,
        "gates": gates,
    }


def _read(store: Store, folder: Path | None, run: str, iteration: int, kept: bool) -> list[_Voted]:
    with store.read() as session:
        run = queries.forks.made_by(session, run, iteration)
        oracle = queries.runs.config_of_run(session, run).audit.label
        labelled = queries.questions.labels_of(session, run, iteration, "kept" if kept else None)
        votes = queries.questions.rollouts_of(session, run, iteration)
        audited = queries.questions.oracle_labels_of(session, run, iteration, oracle) if oracle else []
    votes_of = {key: [*group] for key, group in groupby(votes, lambda vote: vote.question_id)}
    path = texts_path(folder, run, iteration, "label_questions") if folder is not None else None
    texts = read_texts(path) if path is not None and path.exists() else []  # methods that need texts are skipped
    texts_of = {key: [text.text for text in group] for key, group in groupby(texts, lambda text: text.question_id)}
    truths = {label.question_id: label.truth for label in audited}
    keys = [(row.question_id, row) for row in labelled if row.label is not None and row.question_id in votes_of]
    if not keys:
        raise ReplayError(
            f"run {run}, iteration {iteration}: expected stored votes, found none: label_questions has not been done"
        )
    return [_Voted(row, votes_of[key], texts_of.get(key), truths.get(key)) for key, row in keys]


def _outcome(method: Method, group: Group, row: _Voted) -> ScoredGroup | None:
    """What the method makes of the group; None if it lacks a signal that the method needs."""
    entropies = [vote.mean_entropy for vote in row.votes]
    if (
        (method.needs & {"embeddings", "clusters"} and row.texts is None)
        or ("label" in method.needs and group.label is None)
        or ("mean_entropy" in method.needs and None in entropies)
    ):
        return None
    group = replace(group, question_id=row.question.question_id)
    if "mean_entropy" in method.needs:
        group = replace(group, mean_entropy=np.array(entropies, dtype=np.float64))
    [group] = with_signals([group], [(row.question.text or "", row.texts or [])], method, Signals())
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


def _figures(outcomes: Sequence[ScoredGroup | None], voted: Sequence[_Voted], grader: Grader) -> dict[str, Any]:
    replayed = [(outcome, row) for outcome, row in zip(outcomes, voted, strict=True) if outcome]
    labels = [outcome.scored.label for outcome, _ in replayed]
    rewards = np.concatenate([np.delete(o.scored.rewards, o.scored.undecided) for o, _ in replayed])
    learned = [outcome for outcome, _ in replayed if outcome.scored.learn]
    return {
        "questions": len(replayed),
        "labelled": _share(sum(label is not None for label in labels), len(labels)),
        "as_stored": _equal(zip(labels, (row.label for _, row in replayed), strict=True), grader),
        "label_accuracy": _equal(zip(labels, (row.truth for _, row in replayed), strict=True), grader),
        "dropped": _share(len(replayed) - len(learned), len(replayed)),
        "silent": _share(sum(not outcome.advantages.any() for outcome in learned), len(learned)),
        "reward": {
            "mean": float(rewards.mean()),
            "std": float(rewards.std()),
            "min": float(rewards.min()),
            "max": float(rewards.max()),
        }
        if rewards.size
        else None,
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
    voted: Sequence[_Voted], outcomes: dict[str, list[ScoredGroup | None]], grader: Grader
) -> Iterator[dict[str, Any]]:
    """The questions that two methods would label differently. No label counts as different from a label, but methods
    that label no question at all are left out."""
    outcomes = {
        name: of_method
        for name, of_method in outcomes.items()
        if any(outcome and outcome.scored.label for outcome in of_method)
    }
    for i, row in enumerate(voted):
        labels = {name: outcome.scored.label for name, of_method in outcomes.items() if (outcome := of_method[i])}
        distinct = {label for label in labels.values() if label is not None}
        differ = len(distinct) > 1 and any(
            comparison.verdict != "equal"
            for comparison in grader.compare_many([(a, b) for a in distinct for b in distinct if a < b])
        )
        if differ or (distinct and None in labels.values()):
            question = row.question
            yield {"question_id": question.question_id, "text": question.text, "truth": row.truth, "labels": labels}


def _correlations(outcomes: Sequence[Sequence[ScoredGroup | None]]) -> list[list[float | None]]:
    """Pearson's r of the advantages of every two methods, over the rollouts of the groups that both learn from, without
    those that are undecided for either.

    None if there is no such group, or if one method gives all of these rollouts the same advantage.
    """

    def correlation(a: Sequence[ScoredGroup | None], b: Sequence[ScoredGroup | None]) -> float | None:
        both = [(x, y) for x, y in zip(a, b, strict=True) if x and y and x.scored.learn and y.scored.learn]
        if not both:
            return None
        left_out = [(*x.scored.undecided, *y.scored.undecided) for x, y in both]
        x, y = (
            np.concatenate([np.delete(pair[side].advantages, out) for pair, out in zip(both, left_out, strict=True)])
            for side in (0, 1)
        )
        return float(np.corrcoef(x, y)[0, 1]) if x.size and np.ptp(x) > 0 and np.ptp(y) > 0 else None

    return [[correlation(a, b) for b in outcomes] for a in outcomes]


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
        spread = ""
        if reward := row["reward"]:
            spread = f"{reward['mean']:.3f} sd {reward['std']:.3f}\n[{reward['min']:.3f}, {reward['max']:.3f}]"
        main.add_row(name, str(row["questions"]), *shares, spread)
    names = result["advantage_correlation"]["methods"]
    correlations_table = Table("r", *names, title="correlation of advantages (Pearson)", box=SIMPLE_HEAD)
    for name, values in zip(names, result["advantage_correlation"]["matrix"], strict=True):
        correlations_table.add_row(name, *("" if value is None else f"{value:.2f}" for value in values))
    differing = len(result["disagreements"])
    first = f", the first {_EXAMPLES}" if differing > _EXAMPLES else ""
    title = f"{differing} questions that the methods label differently{first}"
    examples = Table("question", "truth", "labels", title=title, box=SIMPLE_HEAD)
    for example in result["disagreements"][:_EXAMPLES]:
        by_label: dict[str, list[str]] = {}  # label -> the methods that give it
        for name, label in example["labels"].items():
            by_label.setdefault("no label" if label is None else label, []).append(name)
        caption = "\n".join(f"{label}: {', '.join(methods)}" for label, methods in by_label.items())
        examples.add_row(*map(escape, (example["text"], example["truth"] or "", caption)))
    title = "gates, each by itself, on what the band kept"
    gates = Table("gate", "admitted", "label right", title=title, box=SIMPLE_HEAD)
    for name, row in result["gates"].items():
        gates.add_row(name, _percent(row["admitted"]), _percent(row["label_accuracy"]))
    optional = [(examples, result["disagreements"]), (gates, result["gates"])]
    return Tables(main, correlations_table, *(table for table, rows in optional if rows))


def _percent(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return ""
    low, high = figure["ci95"]
    return f"{100 * figure['value']:.1f}% [{100 * low:.1f}, {100 * high:.1f}]\nn = {figure['n']}"
