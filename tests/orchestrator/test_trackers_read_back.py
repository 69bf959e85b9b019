"""What each tracker has after a run, read back from its files, and from MLflow's real server: all of the store, once.

The trackers' packages are no part of the project's environment: `pip install -c constraints.txt -e '.[tensorboard]'`.
MLflow's server needs another one than coevo; `COEVO_MLFLOW` is the path of its program `mlflow` there.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from core.settings.trackers import TrackerName, Trackers
from orchestrator.installation.home import Home
from orchestrator.trackers.tracked import tracked
from services.views.metrics import metrics_of
from storage.session import Store
from tests.live import wait_until
from tests.orchestrator.free_port import free_port
from tests.tracked_run import NAME, add, repeat_steps, tracked_run

pytestmark = pytest.mark.heavy
