"""What migrations do to the rows of a database that an earlier version of coevo made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, update

from core.settings.config import CoEvolution, RunConfig, SelfTraining
from core.settings.parsing import load_config, parse_config
from storage import queries
from storage.models import Runs
from storage.queries.tables import table_of
from storage.session import open_store

RUNS = Path(__file__).parents[2] / "deploy" / "runs"


def as_stored_by_0010(config: RunConfig) -> dict[str, Any]:
    """One kind of run had all settings of both."""
    stored = config.model_dump(mode="json", exclude={"kind"})
    if isinstance(config, CoEvolution):
        return {**stored, "prompts": None}
    loop = CoEvolution().model_dump(mode="json", exclude={"kind"})
    for table in ("dataset", "guard"):
        stored[table] = {**loop[table], **stored[table]}
    return {**loop, **stored}


@pytest.mark.parametrize(("preset", "kind"), [("demo", CoEvolution), ("micro", SelfTraining)])
def test_0011_a_run_becomes_one_of_its_kind(database_url: str, preset: str, kind: type) -> None:
    config = load_config(RUNS / f"{preset}.toml", {"seed": 7, "guard.decline": "stop"})
    assert isinstance(config, kind)
    store = open_store(database_url, create=True)
    with store.write() as session:
        queries.create_run(session, name="old", config=config)
        session.execute(update(table_of(Runs)).values(config=as_stored_by_0010(config)))
    store.close()
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0010'")
    engine.dispose()
    upgraded = open_store(database_url, create=True)
    with upgraded.read() as session:
        assert parse_config(queries.get_run(session, "old").config, "stored") == config
    upgraded.close()
