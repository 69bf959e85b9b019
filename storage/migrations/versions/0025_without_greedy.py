"""A model that refuses temperature 0 has no greedy answers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    with op.batch_alter_table("evaluated_items") as table:
        table.alter_column("greedy_correct", existing_type=sa.Boolean(), nullable=True)
