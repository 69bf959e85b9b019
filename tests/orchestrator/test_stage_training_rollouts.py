"""The rows and the texts that a stage stores of its trainings' rollouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core.types import Scored
from orchestrator.stages.training.rollouts import StoredTraining, store_rollouts
from storage import queries
from storage.files.texts import read_texts, training_texts_paths
from storage.queries.training_rollouts import Training
from storage.session import Store
from tests.synthetic_run import CONFIG, context_of, create
from trainers.rollouts import Content, Sample, folder_in, write_step

RUN = "trained"


def train(work_dir: Path, steps: int) -> StoredTraining:
    """What a trainer hands back of a training with two prompts, the second of which is dropped, at every step."""
    for step in range(1, steps + 1):
        groups = [Scored("3", np.array([1.0, 0.0])), Scored(None, np.zeros(2), learn=False)]
        contents = [[Content(f"{RUN}/1/{prompt}", "1 + 2?", "3", True)] * 2 for prompt in (0, 1)]
        samples = [
            [Sample(f"{work_dir.name} {step}.{prompt}.{i}", 7, "stop", 0.5, None if prompt else 1.0) for i in (0, 1)]
            for prompt in (0, 1)
        ]
        write_step(folder_in(work_dir), step, [0, 1], groups, contents, samples)
    return StoredTraining(work_dir, steps)


@pytest.mark.parametrize(("keep", "prompts"), [("none", set()), ("kept", {0}), ("all", {0, 1})])
def test_the_setting_decides_which_texts_are_kept_and_all_rows_are(
    sqlite: Store, tmp_path: Path, keep: str, prompts: set[int]
) -> None:
    config = CONFIG.model_copy(update={"rollout_text": keep})
    with sqlite.write() as session:
        create(session, RUN, config)
    context, training = context_of(sqlite, RUN, 1, config=config, home=tmp_path), train(tmp_path / "solver", 2)
    labelled = train(tmp_path / "labelled", 1)
    chained = StoredTraining(labelled.work_dir, labelled.steps, steps_before=2)
    for _ in range(2):  # the second time as after a crash between the texts and the rows
        add_rows = store_rollouts(context, "solver", [training, chained])
    with sqlite.write() as session:
        add_rows(session)
        rows = queries.training_rollouts.list_rollouts(session, Training(RUN, 1, "solver"))
    assert [(row.step, row.prompt, row.rollout) for row in rows] == [
        (step, prompt, rollout) for step in (1, 2, 3) for prompt in (0, 1) for rollout in (0, 1)
    ]
    texts = {
        (row.question_id, row.sample_index): row.text
        for row in read_texts(training_texts_paths(context.run.home.texts, RUN, 1, "solver")[0])
    }
    names = {1: "solver 1", 2: "solver 2", 3: "labelled 1"}
    assert texts == {
        (row.prompt_key, row.rollout): f"{names[row.step]}.{row.prompt}.{row.rollout}"
        for row in rows
        if row.prompt in prompts
    }
