"""The environment of every process that belongs to the services: addresses, secrets and settings."""

from __future__ import annotations

import os

from core import logs
from orchestrator.installation.home import Home, Services
from services.inference.server import proxy


def environment(home: Home, services: Services) -> dict[str, str]:
    """The environment variables of every process that belongs to these services."""
    of_prefect = {name for name in os.environ if name.startswith("PREFECT_") and "_DATABASE_" in name}
    database, closed = dict[str, str](), dict[str, str]()
    # Prefect makes an address of its home as it is, which leads elsewhere if the path has a ? or a %.
    if not of_prefect and home.prefect_database != f"sqlite+aiosqlite:///{home.prefect}/prefect.db":
        database = {"PREFECT_API_DATABASE_CONNECTION_URL": home.prefect_database}
    if not os.environ.get("COEVO_RAY_ADDRESS"):  # keep web pages and other users of this machine out of the services
        closed = {
            # Anybody who can change a deployment can run any program here. So Prefect requires a password, and lets
            # browsers show its answers to no page but its own.
            **({"PREFECT_SERVER_API_AUTH_STRING": services.prefect_auth} if services.prefect_auth else {}),
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": services.prefect_url,
            # Makes Ray listen on loopback only, as it does by default on other systems than Linux. Otherwise it
            # replaces 127.0.0.1 by this machine's address in the network, where its metrics can be read without a
            # token.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            # The names of TorchInductor's compiled code and of Prefect's copies of flows can be guessed. In a folder
            # that everybody can write to, another user could create these files first.
            "TMPDIR": str(home.ray_temp.parent),
        }
    return {
        **os.environ,
        **database,
        "COEVO_HOME": str(home.path),
        "PREFECT_HOME": str(home.prefect),
        "PREFECT_API_URL": f"{services.prefect_url}/api",
        "PREFECT_UI_API_URL": f"{services.prefect_url}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        # How often Prefect's client repeats a request to a server that does not answer. It waits for 2, 4, 8, ...
        # seconds in between, so a run goes on if Prefect comes back within a quarter of an hour.
        "PREFECT_CLIENT_MAX_RETRIES": "9",
        "DO_NOT_TRACK": "1",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": services.ray_token,
        "RAY_USAGE_STATS_ENABLED": "0",
        # Seconds in which a node of Ray must register. On a machine at work Ray's default of 30 is not enough, and Ray
        # then ends.
        "RAY_raylet_start_wait_time_s": "180",
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": proxy.MIDDLEWARES,
        # Seconds between two passes of Serve's controller. A swap of weights takes several passes for each replica.
        # With Ray's default of 0.1, two replicas take 0.5 s to swap the tiny model; with this value 0.2 s. The idle
        # controller then takes 4% of a core instead of 2%.
        "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.03",
        # Saves one process in each training. It watches for preempted cloud machines, which do not occur on one
        # machine.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        **logs.prefect_variables(),
        **({"PREFECT_API_AUTH_STRING": services.prefect_auth} if services.prefect_auth else {}),
        **closed,
    }
