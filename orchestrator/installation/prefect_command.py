"""The command `prefect`, with the API's limit of headers for the server that it starts.

`coevo up` and docker-compose.yml start Prefect's server with it: `python -m orchestrator.installation.prefect_command
server start`.
"""

from __future__ import annotations

from core.processes.imports import collection_paused
from services.api.access.connections import limit_every_uvicorn


def main() -> None:
    """Do what the command line says, as `prefect` does."""
    with collection_paused():  # they take seconds to import
        import prefect.server.api.server  # noqa: F401 (which the command imports)
        from prefect.cli import app

    limit_every_uvicorn()
    app()


if __name__ == "__main__":
    main()
