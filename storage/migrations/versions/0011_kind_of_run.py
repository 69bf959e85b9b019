"""A run's settings say which kind of run it is, and have only what that kind uses."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_RUNS = sa.table("runs", sa.column("name", sa.Text()), sa.column("config", sa.JSON()))
_ONLY_OF_A_LOOP = (
    ("challenger",),
    ("labelled",),
    *(("dataset", name) for name in ("candidates", "filtered", "delta", "band")),
    *(("guard", name) for name in ("ill_posed", "ill_posed_share", "repetition", "repetition_share")),
)


def upgrade() -> None:
    connection = op.get_bind()
    for name, config in connection.execute(sa.select(_RUNS).with_for_update()).all():
        connection.execute(sa.update(_RUNS).where(_RUNS.c.name == name).values(config=_of_its_kind(config)))


def _of_its_kind(config: dict[str, Any]) -> dict[str, Any]:
    if config.get("prompts") is None:
        return {"kind": "co_evolve", **{name: value for name, value in config.items() if name != "prompts"}}
    for *tables, name in _ONLY_OF_A_LOOP:
        settings = config
        for table in tables:
            settings = settings.get(table, {})
        settings.pop(name, None)
    return {"kind": "self_train", **config}
