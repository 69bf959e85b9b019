"""Labels and figures, made again from their raw rows by the functions that made them.

A comparison that runs into the grader's time limit has no verdict, and another time it may have one. What depends on
such a comparison is named in a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import Any, cast

from core.challenger.gates import Candidate, Gate, Known, Passed, pass_gates
from core.errors import CoevoError
from core.grading.grader import process_grader
from core.questions.filtering import band_verdict, filter_questions, statistics
from core.settings.config import CoEvolution
from core.statistics.calibration import Cell
from core.types import GREEDY, BenchmarkItem, LabelledQuestion, checkpoint_id, evaluation_id
from orchestrator.evaluation.answering import Given, count
from orchestrator.question_sets.benchmarks import evaluated_in
from orchestrator.question_sets.held_out import held_out_texts
from orchestrator.stages.admit_questions import candidates_of, states_before
from orchestrator.stages.audit_labels import audited_labels
from orchestrator.stages.chain import Chain
from orchestrator.stages.label_questions import labelled, result_of
from orchestrator.verification.checks import Compared
from orchestrator.verification.subject import Subject
from services.drift.series import estimated_points, points_of
from services.evaluations.figures import items_of
from services.oracles import human
from storage import queries

_UNDECIDED = "the grader could not decide the same comparisons as in the run"


def labels(subject: Subject) -> Iterator[Compared | str]:
    """The pseudo-label and the verdict of each asked question follow from its m votes. A question that was not asked
    has no votes; its verdict follows from its text. The iteration's statistics follow from its labels."""
    config, dataset = subject.config, subject.config.dataset
    try:
        held_out: set[str] | None = held_out_texts(config)
    except CoevoError:
        held_out = None
        yield "a benchmark cannot be read here, so it is not checked which questions repeat one of it"
    for t, stage, result in subject.done("label_questions" if config.votes_before_training else "read_prompts"):
        questions = subject.read(queries.questions.questions_of, subject.name, t)
        rows = subject.read(queries.questions.labels_of, subject.name, t)
        rollouts = subject.read(queries.questions.rollouts_of, subject.name, t)
        votes = {key: [*group] for key, group in groupby(rollouts, lambda vote: vote.question_id)}
        refused = filter_questions(questions, held_out or ())
        if held_out is None:  # then any question may have repeated a held-out one
            refused |= dict.fromkeys([row.question_id for row in rows if row.verdict == "duplicate"], "duplicate")
        expected = {row.id: LabelledQuestion(row.id, row.text, None, refused.get(row.id, "kept")) for row in questions}
        if stage == "label_questions":
            asked = [question for question in questions if question.id not in refused]
            answers = [[vote.answer for vote in votes.get(question.id, [])] for question in asked]
            expected |= {row.question_id: row for row in labelled(asked, answers, dataset)}
        # As they were before any gate refused some.
        before = [replace(row, verdict="kept", gate=None) if row.verdict == "refused" else row for row in rows]
        stored = {row.question_id: row for row in before}
        for key in sorted(expected | stored):
            row, of_run = expected.get(key), stored.get(key)
            indices = [*range(dataset.votes)] if row is not None and row.label is not None else []
            yield f"{key}: sample indices of the votes", indices, [vote.sample_index for vote in votes.get(key, [])]
            if row and of_run and row.label and of_run.label and row.label.unknown != of_run.label.unknown:
                row = replace(of_run, verdict=band_verdict(of_run.label, dataset.limits))
                yield f"{key}: {_UNDECIDED}"
            yield key, row, of_run
        if not config.gates or (t, "admit_questions") in subject.results:
            stats = subject.read(queries.figures.filter_stats_of, subject.name).get(t)
            yield f"filter_stats of iteration {t}", asdict(statistics(rows)), asdict(stats) if stats else {}
        if stage == "label_questions":
            yield f"result of label_questions {t}", result_of(statistics(before)), result


def admissions(subject: Subject) -> Iterator[Compared | str]:
    """Which question a gate refused, and the gates' states, follow from the votes, from what models have answered for
    the gates, and from the states of the iteration before."""
    for t, _, result in subject.done("admit_questions"):
        rows = subject.read(queries.questions.labels_of, subject.name, t)
        passed = _passed(subject, t, rows, result)
        undecided = [
            gate["metrics"].get("undecided", 0) for of in (passed.as_json(), result["gates"]) for gate in of.values()
        ]
        stored = {row.question_id: row.gate for row in rows if row.verdict == "refused"}
        if any(undecided) and passed.refused != stored:
            yield f"iteration {t}: {_UNDECIDED}, so the gates' verdicts are not checked"
            continue
        for key in [row.question_id for row in rows if row.question_id in passed.refused or row.verdict == "refused"]:
            yield f"{key}: gate", passed.refused.get(key), stored.get(key)
        yield f"result of admit_questions {t}", {"gates": passed.as_json()}, result


def _passed(subject: Subject, t: int, rows: Sequence[LabelledQuestion], result: Mapping[str, Any]) -> Passed:
    """The admission of an iteration's questions, computed again."""
    config = cast(CoEvolution, subject.config)
    voted, in_band = candidates_of(rows, config, t)
    with subject.store.read() as session:
        states = states_before(session, Chain(session, subject.name, config, t, "admit_questions"))

    def told(gate: Gate, _candidates: Sequence[Candidate]) -> Known:
        evidence = subject.read(queries.questions.evidence_of, subject.name, t, gate.type)
        # Since then there may have been further audits. Those that the gate has seen are in its state.
        audits = [Cell(*cell) for cell in result["gates"][gate.type]["state"]] if gate.needs == "audits" else []
        return Known(voted, evidence, audits, states.get(gate.type))

    return pass_gates(config.gates, in_band, told)


def oracle_labels(subject: Subject) -> Iterator[Compared | str]:
    """The labels of the run's own audits, by an oracle that needs no service and no program of the user's."""
    audit = subject.config.audit
    for t, _, result in subject.done("audit_labels") if audit.oracle in ("exact", "given") else ():
        rows = subject.read(queries.questions.oracle_labels_of, subject.name, t, str(audit.oracle))
        stored = {row.question_id: row.verdict for row in rows}
        expected = {row.question_id: row.verdict for row in audited_labels(subject.store, subject.name, t, audit)}
        yield f"result of audit_labels {t}: audited", len(expected), result.get("audited")
        for key in sorted(expected | stored):
            verdicts = expected.get(key), stored.get(key)
            if audit.oracle == "given" and verdicts[0] != verdicts[1] and "unknown" in verdicts:
                yield f"{key}: {_UNDECIDED}"
            else:
                yield f"{key}: verdict of {audit.oracle}", *verdicts


def series(subject: Subject) -> Iterator[Compared | str]:
    """The measured series of each finished iteration, label accuracy among them, are what the other tables give; its
    estimates are what p_hat and the audits of other iterations give.

    Estimates are made anew when questions are labelled, and once an audit is over: at the end of the iteration if it is
    the run's own, and of the sample if people label it. Until then they are those of the time before, and left out.
    """
    finished = subject.finished
    stored = [row for row in subject.read(queries.series.series_of, subject.name) if row.iteration in finished]
    expected = [row for t in finished for row in subject.read(points_of, subject.name, t)]
    sampled = subject.read(queries.audits.oracles_of, subject.name).get(human.ORACLE, [])
    over = [subject.read(human.is_over, subject.name, t) for t in sampled]
    if all(over) and finished >= {t for t, *_ in subject.done("audit_labels")}:
        expected += [row for row in subject.read(estimated_points, subject.name) if row.iteration in finished]
    else:
        stored = [row for row in stored if not row.estimated]
        yield "an audit is not over, so no estimate of label accuracy is checked"
    a, b = (
        {
            (row.name, row.over or "", row.oracle or "", row.estimated, row.iteration): [
                row.value,
                row.lo,
                row.hi,
                row.n,
            ]
            for row in points
        }
        for points in (expected, stored)
    )
    for key in sorted(a | b):
        name, of, by, estimated, t = key
        kind = f"{f' of {of}' if of else ''}{f' by {by}' if by else ''}{', estimated' if estimated else ''}"
        yield f"series {name}{kind}, iteration {t}", a.get(key), b.get(key)


def evaluations(subject: Subject) -> Iterator[Compared]:
    """A stage that evaluates asked the checkpoint that the chain says, on all of the run's benchmarks, to the end."""
    for t, stage, result in subject.done("evaluate", "evaluate_labelled"):
        of_branch, asked = checkpoint_id(subject.name, "labelled", t), 0
        checkpoint = of_branch if stage == "evaluate_labelled" else subject.playing("solver", t, stage)
        for benchmark in evaluated_in(subject.config):
            key = evaluation_id(checkpoint, benchmark)
            row = subject.read(queries.evaluations.find_evaluation, key)
            asked += len(subject.read(queries.evaluations.results_of, key))
            is_finished = row is not None and row.finished_at is not None
            yield f"{stage} of iteration {t}: evaluation of {checkpoint} on {benchmark}", True, is_finished
        yield f"result of {stage} of iteration {t}", {"checkpoint": checkpoint, "items": asked}, result


def evaluated_questions(subject: Subject) -> Iterator[Compared | str]:
    """The counts of each question of the run's evaluations, and the verdicts and the classes of its answers, are those
    that the grader gives."""
    asked = {checkpoint.id for checkpoint in subject.checkpoints}
    for row in subject.read(queries.evaluations.of_run, subject.name):
        if row.model not in asked:
            continue
        if not row.manifest:
            yield f"{row.benchmark}, {row.model}: what it was asked is not stored"
            continue
        stored = {result.item_id: result for result in subject.read(queries.evaluations.results_of, row.id)}
        rows = subject.read(queries.evaluations.answers_of, row.id)
        answers = {item: [*group] for item, group in groupby(rows, lambda answer: answer.item_id)}
        with subject.store.read() as session:
            items = {item.id: item for item in items_of(session, row)}
        greedy, samples = row.manifest["decoding"]["greedy"], row.manifest["decoding"]["samples"]
        indices, whole = [*([GREEDY] if greedy else []), *range(samples)], list[BenchmarkItem]()
        for key in sorted(stored | answers):
            sampled = [answer.sample_index for answer in answers.get(key, [])]
            yield f"{row.benchmark}, {row.model}, question {key}: sample indices", indices, sampled
            whole += [items[key]] if sampled == indices else []
        given = [[Given(of.answer, of.tokens, of.finish_reason) for of in answers[item.id]] for item in whole]
        of_samples = [group[len(indices) - samples :] for group in given if samples]
        of_greedy = [group[:1] for group in given if greedy]
        kind = row.manifest["grader"]["answers"]
        results, graded = count(whole, [*of_samples, *of_greedy], process_grader(), kind, greedy) if whole else ([], [])
        graded.sort(key=lambda answer: (answer.item_id, answer.sample_index))
        again = {item: [*group] for item, group in groupby(graded, lambda answer: answer.item_id)}
        for result in results:
            key, name = result.item_id, f"{row.benchmark}, {row.model}, question {result.item_id}"
            expected = again[key]
            if expected != answers[key] and any(answer.verdict == "unknown" for answer in [*expected, *answers[key]]):
                yield f"{name}: {_UNDECIDED}"
                continue
            yield name, result, stored.get(key)
            for answer, of_run in zip(expected, answers[key], strict=True):
                yield f"{name}, sample {answer.sample_index}", answer, of_run
