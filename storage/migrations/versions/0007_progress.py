"""How far a stage is, in the ledger."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("stages", sa.Column("progress_done", sa.Integer))
    op.add_column("stages", sa.Column("progress_total", sa.Integer))
    op.add_column("stages", sa.Column("progress_note", sa.Text))
