"""Python imports this module when it starts. It replaces CUDA by the CPU in EasyR1's source while that is loaded.

EasyR1's files stay unchanged. Its arithmetic, FSDP, data, rewards and checkpoints are its own.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import Any

REPLACEMENTS = {
    '"cuda"': '"cpu"',
    '"nccl"': '"gloo"',
    "batch.cuda(device=": "batch.to(device=",
    'attn_implementation="flash_attention_2"': 'attn_implementation="sdpa"',
    "ray.init(runtime_env=runtime_env)": "ray.init(runtime_env=runtime_env, include_dashboard=False)",
    "range(120)": "range(900)",  # the number of seconds that EasyR1 waits for its first worker
}


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> Any:  # it neither reads nor writes the checkout's .pyc files
        path = self.get_filename(fullname)
        text = self.get_data(path).decode()
        for gpu, cpu in REPLACEMENTS.items():
            text = text.replace(gpu, cpu)
        return compile(text, path, "exec", dont_inherit=True)

    def exec_module(self, module: Any) -> None:
        import fake_cuda  # noqa: F401 (imported here because it loads torch, which Ray's own processes do not need)

        super().exec_module(module)


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] != "verl":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


sys.meta_path.insert(0, _Finder)
