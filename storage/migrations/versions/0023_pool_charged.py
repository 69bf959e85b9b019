"""A job of the worker pool says until when its use counts. Running jobs have counted nothing yet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.add_column("pool_jobs", sa.Column("charged", sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE pool_jobs SET charged = since WHERE status = 'running'")
