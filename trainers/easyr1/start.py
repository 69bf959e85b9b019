"""Starts EasyR1, corrected in each of its processes: `python -m trainers.easyr1.start config=FILE …`.

Runs in EasyR1's environment, of which it takes Ray alone. The arguments are EasyR1's.
"""

from __future__ import annotations

import runpy
from typing import Any

import ray

from trainers.easyr1 import corrections


def main() -> None:
    begin = ray.init
    hook = f"{corrections.__name__}.{corrections.install.__name__}"

    def init(*args: Any, runtime_env: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        corrected = {**(runtime_env or {}), "worker_process_setup_hook": hook}
        return begin(*args, runtime_env=corrected, **kwargs)

    ray.init = init
    runpy.run_module("verl.trainer.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
