"""What a stored run trained with, where the settings are newer: AdamW's betas, and a new AdamW in each round."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

_RUNS = sa.table("runs", sa.column("name", sa.Text()), sa.column("config", sa.JSON()))
_EMBEDDED, _EASYR1 = [0.9, 0.99], [0.9, 0.999]  # the betas that the trainers had before they were a setting


def upgrade() -> None:
    connection = op.get_bind()
    for name, config in connection.execute(sa.select(_RUNS).with_for_update()).all():
        connection.execute(sa.update(_RUNS).where(_RUNS.c.name == name).values(config=_as_trained(config)))


def _as_trained(config: dict[str, Any]) -> dict[str, Any]:
    betas = _EASYR1 if config["trainer"]["type"] == "easyr1" else _EMBEDDED
    for table in ("challenger", "solver", "labelled"):
        if part := config.get(table):  # a run of kind self_train has only the second; the last may be None
            part["training"]["betas"] = betas
    if config["kind"] == "self_train":
        config["solver"]["training"]["optimiser"] = "fresh"
    return config
