"""Starts EasyR1 with `corrections.py` active in all its processes: `python -m trainers.easyr1.start config=FILE …`.

It runs in EasyR1's environment and imports only Ray from it. The arguments are EasyR1's.
"""

from __future__ import annotations

import runpy
from typing import Any

import ray

from trainers.easyr1 import corrections


def main() -> None:
    """Wrap `ray.init` so that each Ray worker process installs the corrections, and run EasyR1's main module."""
    original_init = ray.init
    hook = f"{corrections.__name__}.{corrections.install.__name__}"

    def init(*args: Any, runtime_env: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        with_hook = {**(runtime_env or {}), "worker_process_setup_hook": hook}
        return original_init(*args, runtime_env=with_hook, **kwargs)

    ray.init = init
    runpy.run_module("verl.trainer.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
