"""A run from an archive is marked until somebody who may name programs continues it.

Three columns that refer to checkpoints get an index: without it, deleting a checkpoint reads their whole tables.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.add_column("runs", sa.Column("unconfirmed", sa.Boolean(), nullable=False, server_default=sa.false()))
    for table in ("questions", "rollouts", "trained_on"):
        op.create_index(f"ix_{table}_checkpoint", table, ["checkpoint"])
