"""Loops with labelled data go on from the Solver that was trained on it, which now is a setting."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

_RUNS = sa.table("runs", sa.column("name", sa.Text()), sa.column("config", sa.JSON()))


def upgrade() -> None:
    connection = op.get_bind()
    for name, config in connection.execute(sa.select(_RUNS).with_for_update()).all():
        if labelled := config.get("labelled"):  # a run of kind self_train has none; it may also be None
            labelled["chained"] = True
            connection.execute(sa.update(_RUNS).where(_RUNS.c.name == name).values(config=config))
