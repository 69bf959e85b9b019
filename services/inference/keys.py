"""The keys of services, other people's and our own."""

from __future__ import annotations

import os
from collections.abc import Sequence

from core.settings.serving import Service
from services.inference import access
from services.inference.client import InferenceError


def keys_of(services: Sequence[Service]) -> dict[str, str]:
    """The keys of those services that have one, by their variables, from this process's environment.

    Raises `InferenceError` naming a variable that is not set.
    """
    keys = {}
    for service in services:
        if (name := service.key_variable) is not None:
            keys[name] = (access.key() if name == access.KEY else os.environ.get(name)) or ""
            if not keys[name]:
                raise InferenceError(f"{service.url}: key_variable: {name} is not set in the environment")
    return keys
