"""The environment of every process that belongs to the services: addresses, secrets and settings."""

from __future__ import annotations

import os

from orchestrator.installation.home import Home, Services
from services.inference.server import proxy


def environment(home: Home, services: Services) -> dict[str, str]:
    """The environment of every process that belongs to these services."""
    return {
        **os.environ,
        "COEVO_HOME": str(home.path),
        "PREFECT_HOME": str(home.prefect),
        "PREFECT_API_URL": f"{services.prefect_url}/api",
        "PREFECT_UI_API_URL": f"{services.prefect_url}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "DO_NOT_TRACK": "1",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": services.ray_token,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": proxy.MIDDLEWARES,
        # Seconds between the looks of Serve's controller, of which a swap of weights takes several a replica. At Ray's
        # .1 two replicas take .5 s to swap the tiny model, and .2 s now; the idle controller takes 4% of a core, not 2.
        "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.03",
        # one process less a training; there is nothing to be preempted on one machine
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        **({"PREFECT_API_AUTH_STRING": services.prefect_auth} if services.prefect_auth else {}),
        **({} if os.environ.get("COEVO_RAY_ADDRESS") else _closed_to_others(home, services)),
    }


def _closed_to_others(home: Home, services: Services) -> dict[str, str]:
    """What keeps web pages and other users of this machine out of services that run on it."""
    return {
        # Who may change a deployment may run any program here. So Prefect asks for a password, and has browsers keep
        # its answers from every page but its own.
        **({"PREFECT_SERVER_API_AUTH_STRING": services.prefect_auth} if services.prefect_auth else {}),
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": services.prefect_url,
        # Ray listens on loopback alone, as it does on other systems by default. Otherwise it takes 127.0.0.1 for this
        # machine's address in the network, where its metrics can be read without a token.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        # TorchInductor's compiled code and Prefect's copies of flows have names that can be guessed. In a folder that
        # everybody may write into, another user could be first to make them.
        "TMPDIR": str(home.ray_temp.parent),
    }
