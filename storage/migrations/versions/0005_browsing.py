"""Labels carry their question's run, iteration and index, so that an iteration's can be read in order of p_hat; keys of
the REST API."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_PLACE = {"run": sa.Text, "iteration": sa.Integer, "index": sa.Integer}


def upgrade() -> None:
    with op.batch_alter_table("pseudo_labels") as labels:
        for name, kind in _PLACE.items():
            labels.add_column(sa.Column(name, kind))
    label = sa.table("pseudo_labels", sa.column("question_id"), *(sa.column(name) for name in _PLACE))
    question = sa.table("questions", sa.column("id"), *(sa.column(name) for name in _PLACE))
    values = {
        name: sa.select(question.c[name]).where(question.c.id == label.c.question_id).scalar_subquery()
        for name in _PLACE
    }
    op.execute(sa.update(label).values(values))
    with op.batch_alter_table("pseudo_labels") as labels:
        for name, kind in _PLACE.items():
            labels.alter_column(name, existing_type=kind(), nullable=False)
    for last in ("p_hat", "verdict"):
        columns = ["run", "iteration", last, "index"]
        op.create_index(f"ix_pseudo_labels_{'_'.join(columns)}", "pseudo_labels", columns)
    op.create_table(
        "api_keys",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("scopes", sa.JSON, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_index("ix_api_keys_sha256", "api_keys", ["sha256"])
