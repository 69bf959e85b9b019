"""Stored runs keep the format check that they had before it was a setting: a question comes with an answer."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

_RUNS = sa.table("runs", sa.column("name", sa.Text()), sa.column("config", sa.JSON()))


def upgrade() -> None:
    connection = op.get_bind()
    for name, config in connection.execute(sa.select(_RUNS).with_for_update()).all():
        if "challenger" in config:
            config["challenger"]["reward"]["format"] = "tags_and_answer"
            connection.execute(sa.update(_RUNS).where(_RUNS.c.name == name).values(config=config))
