"""A checkpoint's row says whether its files were removed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.add_column("checkpoints", sa.Column("files_removed", sa.Boolean(), nullable=False, server_default=sa.false()))
