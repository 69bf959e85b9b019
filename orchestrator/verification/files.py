"""The files of texts, of checkpoints and of the optimisers' moments, and what nothing refers to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from rich.filesize import decimal

from core.grading.answers import extract_boxed
from core.types import evaluation_id
from orchestrator.check.start import why_no_longer
from orchestrator.disk.garbage import garbage
from orchestrator.question_sets.benchmarks import evaluated_in
from orchestrator.stages.training.rollouts import prompts_with_text
from orchestrator.verification.checks import Compared
from orchestrator.verification.subject import Subject
from orchestrator.verification.trainings import trainings_of
from storage import queries
from storage.errors import CheckpointError, StoreError
from storage.files.checkpoints import digest, published_manifest, verify
from storage.files.texts import evaluation_path, read_texts, texts_path
from storage.rows import ENDED

_Key = tuple[str, int]  # of a text: its question or prompt, and its sample


def texts(subject: Subject) -> Iterator[Compared]:
    """Each stage that samples has a readable file of texts. The file has exactly one text for each row whose text the
    run keeps (`rollout_text`). A vote's answer is the answer in its text."""
    folder, run, config = subject.home.texts, subject.name, subject.config
    for t, *_ in subject.done("label_questions"):
        labels = subject.read(queries.questions.labels_of, run, t)
        kept = {row.question_id for row in labels if config.keeps_text(kept=row.verdict in ("kept", "refused"))}
        votes = [row for row in subject.read(queries.questions.rollouts_of, run, t) if row.question_id in kept]
        answers = {(row.question_id, row.sample_index): row.answer for row in votes}
        yield from _texts(texts_path(folder, run, t, "label_questions"), answers, are_votes=True)
    for t, stage, _, rows in trainings_of(subject):
        prompts = prompts_with_text(config, rows)
        keys = [(row.prompt_key, row.rollout) for row in rows if row.prompt_key in prompts]
        if rows:
            yield from _texts(texts_path(folder, run, t, stage), dict.fromkeys(keys))
    for *_, result in subject.done("evaluate", "evaluate_labelled") if config.rollout_text == "all" else ():
        for key in (evaluation_id(result["checkpoint"], benchmark) for benchmark in evaluated_in(config)):
            keys = [(row.item_id, row.sample_index) for row in subject.read(queries.evaluations.answers_of, key)]
            yield from _texts(evaluation_path(folder, key), dict.fromkeys(keys))


def _texts(path: Path, answers: Mapping[_Key, str | None], *, are_votes: bool = False) -> Iterator[Compared]:
    try:
        stored = read_texts(path)
    except StoreError as error:
        yield str(path), "a file of texts that can be read", str(error)
        return
    counts = Counter((text.question_id, text.sample_index) for text in stored)
    for key in sorted(answers.keys() | counts):
        yield f"{key[0]}, sample {key[1]}: texts in {path}", int(key in answers), counts[key]
    for question, sample, text in stored if are_votes else ():
        if (question, sample) in answers:
            yield f"{question}, sample {sample}: answer", extract_boxed(text), answers[question, sample]


def checkpoints(subject: Subject) -> Iterator[Compared | str]:
    """The sha256 of each checkpoint's manifest is in its row; the sha256 of each file is in the manifest.

    With `Subject.quick`, only manifests are read. Files that the run does not keep are not missing.
    """
    rows = subject.checkpoints
    for row in rows:
        manifest = subject.read(queries.checkpoints.manifest_of, row.id)
        yield f"{row.id}: sha256 of the manifest in the row", row.sha256, digest(manifest)
        if not row.files_removed:
            yield _files(row.id, Path(row.path), row.sha256, quick=subject.quick)
    if removed := sum(row.files_removed for row in rows):
        yield f"the files of {removed} checkpoints were removed, as checkpoints.keep says"


def moments(subject: Subject) -> Iterator[Compared]:
    """The optimiser's moments in the home have the sha256 in the stages' results. The moments for the next round are
    there; a run removes earlier ones."""
    config, rounds = subject.config, subject.done("train_solver")
    folder, needed = subject.home.optimisers / subject.name / "solver", None
    goes_on_here = subject.iterations[-1] == config.iterations  # not in a fork, which need not want them
    may_go_on = subject.run.status not in ENDED or why_no_longer(config, subject.run.status) is None
    if config.rounds_are_one_training and goes_on_here and may_go_on and rounds:
        needed = subject.playing("solver", rounds[-1][0] + 1, "train_solver")
    for t, _, result in rounds:
        key, of_round = f"{subject.name}/solver/{t}", folder / str(t)
        if result.get("optimiser") and of_round.is_dir():
            yield _files(f"moments of {key}", of_round, result["optimiser"], quick=subject.quick)
        elif result.get("optimiser") and key == needed:
            yield f"moments of {key}", f"a folder {of_round}", None


def _files(row: str, folder: Path, sha256: str, *, quick: bool) -> Compared:
    try:
        if quick:
            return f"{row}: sha256 of its manifest", sha256, digest(published_manifest(folder))
        verify(folder, sha256)
    except CheckpointError as error:
        return f"files of {row}", "the files of its manifest, unchanged", str(error)
    except OSError as error:  # the disk cannot read it, or the folder is closed to this user
        return f"files of {row}", "readable files", f"{error.filename}: {error.strerror}"
    return f"files of {row}", sha256, sha256


def left_over(subject: Subject) -> Iterator[str]:
    """What `coevo store gc` would call garbage of the run is a note: it takes room and does no harm."""
    for item in garbage(subject.home, subject.store, timedelta(0), only_run=subject.name):
        yield f"{item.path}: {item.why}; `coevo store gc` removes its {decimal(item.bytes)}"
