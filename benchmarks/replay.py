"""Measures how long `coevo replay --methods all` takes for one iteration of 8,000 questions with ten votes each.

The votes are those of the benchmark `voting`: numbers, fractions and symbolic answers in several spellings, missing
answers and junk.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.voting import make_groups
from core.questions.voting import vote_many
from core.settings.config import CoEvolution
from core.types import Checkpoint, LabelledQuestion, Question, Rollout, question_id
from storage import queries
from storage.session import open_store
from storage.texts import TextWriter, texts_path

_RUN, _GROUPS = "bench", 8000
_COEVO = Path(sys.executable).parent / "coevo"


def run(groups: int = _GROUPS) -> dict[str, Any]:
    """Measure the seconds of the whole command, from its start to its JSON output, for all methods together."""
    with tempfile.TemporaryDirectory() as folder:
        _fill(Path(folder), make_groups(groups))
        start = time.perf_counter()
        command = [str(_COEVO), "replay", _RUN, "--iteration", "1", "--methods", "all", "--json"]
        environment = {**os.environ, "COEVO_HOME": folder}
        process = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
        seconds = time.perf_counter() - start
    report = json.loads(process.stdout)
    replayed = {name: row["questions"] for name, row in report["methods"].items() if "skipped" not in row}
    skipped = {name: row["skipped"] for name, row in report["methods"].items() if "skipped" in row}
    return {
        "groups": groups,
        "votes": report["rollouts"],
        "seconds": round(seconds, 1),
        "played": replayed,
        "skipped": skipped,
    }


def _fill(home: Path, groups: Sequence[Sequence[str | None]]) -> None:
    """Store an iteration as `label_questions` does, with short texts and without labels by an oracle."""
    rng, base = random.Random(0), f"{_RUN}/base/0"
    questions = [
        Question(question_id(_RUN, 1, i), _RUN, 1, i, f"Question {i}?", "", base, i) for i in range(len(groups))
    ]
    labels = vote_many(groups, None)
    rollouts = [
        Rollout(question.id, j, _text(answer, rng), answer, 40, "stop", rng.random(), 0.0, base, j)
        for question, group in zip(questions, groups, strict=True)
        for j, answer in enumerate(group)
    ]
    with open_store(f"sqlite:///{home}/coevo.db", create=True).write() as session:
        queries.runs.create_run(session, name=_RUN, config=CoEvolution())
        queries.checkpoints.add_checkpoint(session, Checkpoint(base, _RUN, "base", 0, 0, "/base", "0" * 64, None), {})
        queries.questions.add_questions(session, questions)
        queries.questions.add_rollouts(session, rollouts)
        labelled = zip(questions, labels, strict=True)
        queries.questions.add_labels(
            session, [LabelledQuestion(question.id, question.text, label, "kept") for question, label in labelled]
        )
    writer = TextWriter(texts_path(home / "texts", _RUN, 1, "label_questions"))
    writer.add(0, rollouts)
    writer.finish()


def _text(answer: str | None, rng: random.Random) -> str:
    steps = " ".join(f"{rng.choice('abc')} {rng.choice('+-*')} {rng.randint(1, 99)}" for _ in range(rng.randint(1, 8)))
    return steps if answer is None else rf"{steps} \boxed{{{answer}}}"
