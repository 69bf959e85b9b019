"""Reads the keys of services, external ones and our own, from the environment."""

from __future__ import annotations

import os
from collections.abc import Sequence

from core.asking.service import Service
from core.texts.redaction import hide
from services.inference import access
from services.inference.client import InferenceError


def keys_of(services: Sequence[Service]) -> dict[str, str]:
    """The keys of those services that need one, by the names of their environment variables. Logs hide them then.

    Raises `InferenceError`, with the name of the variable, if a key is not set.
    """
    keys = {}
    for service in services:
        if (name := service.key_variable) is not None:
            keys[name] = (access.key() if name == access.KEY else os.environ.get(name)) or ""
            if not keys[name]:
                raise InferenceError(f"{service.url}: key_variable: {name} is not set in the environment")
    hide(keys.values())
    return keys


def own_keys() -> dict[str, str]:
    """Ray's token and the key of the run's own applications, as far as they have any, by the names of their environment
    variables: with them, a process swaps an application's weights and asks it. Logs hide them then."""
    keys = {access.RAY_TOKEN: os.environ.get(access.RAY_TOKEN), access.KEY: access.key()}
    given = {name: key for name, key in keys.items() if key}
    hide(given.values())
    return given


def hide_keys(services: Sequence[Service]) -> None:
    """Have the logs hide those keys of services that are in the environment, before any of them is used."""
    hide(filter(None, (os.environ.get(service.key_variable or "") for service in services)))
