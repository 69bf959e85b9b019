"""A run keeps what its configuration was made from, and people's tags and note. The list of runs has an index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    for column in (
        sa.Column("preset_settings", sa.JSON(), nullable=True),
        sa.Column("overrides", sa.JSON(), nullable=True),
        sa.Column("tags", sa.JSON(), nullable=False, server_default="[]"),
        sa.Column("note", sa.Text(), nullable=False, server_default=""),
        sa.Column("noted_by", sa.Text(), nullable=True),
        sa.Column("noted_at", sa.DateTime(timezone=True), nullable=True),
    ):
        op.add_column("runs", column)
    op.create_index(None, "runs", ["created_at", "name"])
