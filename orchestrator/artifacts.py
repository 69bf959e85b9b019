"""What a run leaves in the Prefect UI besides its states: a filter table, results, the curves as a picture."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from prefect.artifacts import create_image_artifact, create_markdown_artifact, create_table_artifact

from orchestrator.progress import artifact_key
from storage.session import Store


def stage_result(run: str, iteration: int, stage: str, result: Mapping[str, Any]) -> None:
    """What the stage left in the ledger: the filter's counts as a table, all else as a list."""
    key = artifact_key(run, iteration, stage)
    title = f"{run}, iteration {iteration}: {stage}"
    if stage == "label_questions":
        rows = [{"figure": name, "value": value} for name, value in result.items()]
        create_table_artifact(rows, key=key, description=title)
    else:
        lines = [f"- {name}: `{value}`" for name, value in result.items()]
        create_markdown_artifact("\n".join([f"### {title}", *lines]), key=key)


def curves(store: Store, run: str) -> None:
    """Held-out accuracy and label accuracy so far."""
    from orchestrator.report import curves_png  # Matplotlib: more than a second before a run's first stage

    picture = base64.b64encode(curves_png(store, run)).decode()
    key = artifact_key(run, "curves")
    create_image_artifact(f"data:image/png;base64,{picture}", key=key, description=f"{run}: accuracy by iteration")
