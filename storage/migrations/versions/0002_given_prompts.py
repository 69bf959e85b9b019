"""Questions may be given in a file: then no checkpoint wrote them, and they may come with their true answer.

What a training minimises is said by its reward since then: the stored configurations are moved along.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_OBJECTIVE = ("kl_coefficient", "clip_low", "clip_high", "loss_average")


def upgrade() -> None:
    with op.batch_alter_table("questions") as questions:
        questions.add_column(sa.Column("answer", sa.Text))
        questions.alter_column("checkpoint", existing_type=sa.Text, nullable=True)
    runs = sa.table("runs", sa.column("name", sa.Text), sa.column("config", sa.JSON))
    connection = op.get_bind()
    for name, config in connection.execute(sa.select(runs.c.name, runs.c.config)).all():
        connection.execute(runs.update().where(runs.c.name == name).values(config=_moved(config)))


def _moved(config: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(json.dumps(config))
    for role in ("challenger", "solver"):
        part = tree.get(role, {})
        for setting in _OBJECTIVE:
            if setting in part.get("training", {}):
                part.setdefault("reward", {})[setting] = part["training"].pop(setting)
    return tree
