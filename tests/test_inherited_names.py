"""A class of ours that inherits from another package's class takes none of its names unless it means to.

Otherwise the base calls our method in place of its own. `typing_extensions.override` marks a method that is meant to
take the place of the base's.
"""

from __future__ import annotations

import ast

import pytest

from tests.class_names import ROOT, ClassSource, NotInstalledError, Source, ancestors, names_of

OURS = ("core", "storage", "services", "trainers", "orchestrator", "benchmarks")


def classes_of(source: Source) -> list[ClassSource]:
    return [ClassSource(source, node) for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)]


def foreign_bases(ours: ClassSource) -> list[ClassSource | type | NotInstalledError]:
    return [base for base in ancestors(ours) if not (isinstance(base, ClassSource) and base.source.package in OURS)]


def taken(ours: ClassSource) -> set[str]:
    """The names that `ours` takes from other packages' classes without the decorator.

    Names with two underscores on both sides are Python's. A public attribute of the base's body that gets a value in
    the body of `ours` is a setting, such as pydantic's `model_config`.
    """
    names, violations = names_of(ours), set[str]()
    for inherited in (names_of(base) for base in foreign_bases(ours) if not isinstance(base, NotInstalledError)):
        settings = {name for name in names.with_value & inherited.data if not name.startswith("_")}
        violations |= ((names.body - names.overrides - settings) | names.on_self) & (inherited.body | inherited.on_self)
    return {name for name in violations if not (name.startswith("__") and name.endswith("__"))}


@pytest.mark.parametrize("package", OURS)
def test_a_class_takes_no_name_of_another_packages_class_unless_it_means_to(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    modules = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    classes = [
        ours
        for module, file in zip(modules, files, strict=True)
        for ours in classes_of(Source(module, ast.parse(file.read_bytes())))
    ]
    assert any(map(foreign_bases, classes))
    violations = {f"{ours.source.module}.{ours.node.name}": names for ours in classes if (names := taken(ours))}
    assert not violations
    absent = {str(base) for ours in classes for base in foreign_bases(ours) if isinstance(base, NotInstalledError)}
    if absent:
        pytest.skip(f"the names of these packages' classes were not read, because they are not installed: {absent}")


RAY = "from ray.serve.llm.deployment import LLMServer\n"
CASES = {
    # a method of the base's base, in a module that this one imports it from
    RAY + "class Ours(LLMServer):\n async def _start_engine(self, folder): ...": {"_start_engine"},
    RAY + "class Ours(LLMServer):\n @override\n async def start(self): ...": set(),
    # what the base's methods assign, also where the package's name is not that of the import
    RAY + "class Ours(LLMServer):\n async def start_up(self):\n  self.engine, self._ours = 1, 2": {"engine"},
    RAY + "class Ours(LLMServer):\n engine: int": {"engine"},
    "import logging as log\nclass Ours(log.Handler):\n def close(self): self.level = 1": {"close", "level"},
    # a class between that is ours, and a base with type arguments
    "from threading import Thread\nclass Base(Thread): ...\nclass Ours(Base):\n _target = 1": {"_target"},
    "from torch.utils.data import IterableDataset\nclass Ours(IterableDataset[int]):\n __add__ = 1": set(),
    # packages of several layers: relative imports, `import *`, classes in C, names for type checkers only
    "from prefect.input import RunInput\nclass Ours(RunInput):\n keyset_from_type: str = ''": {"keyset_from_type"},
    "import asyncio\nclass Ours(asyncio.SubprocessProtocol):\n def process_exited(self): ...": {"process_exited"},
    "from uvicorn.protocols.http.h11_impl import H11Protocol\nclass Ours(H11Protocol):\n loop = 1": {"loop"},
    "from torch import nn\nclass Ours(nn.Module):\n def _apply(self, fn): self.training = 1": {"_apply", "training"},
    "class Ours(Exception):\n args: int": {"args"},
    "from typing import NamedTuple\nclass Ours(NamedTuple):\n count: int": {"count"},
    # settings of the base, and a field that has the name of one
    "from pydantic import BaseModel\nclass Ours(BaseModel):\n model_config = 1\n copy: int = 2": {"copy"},
    "from pydantic import BaseModel\nclass Ours(BaseModel):\n model_config: int": {"model_config"},
    # a package that is not installed hides the names of its own classes only
    "from no_such_package import A\nclass Ours(A, ValueError):\n def add_note(self): ...": {"add_note"},
}


@pytest.mark.parametrize(("text", "expected"), CASES.items())
def test_the_names_of_a_base_are_read_from_its_source(text: str, expected: set[str]) -> None:
    *_, ours = classes_of(Source("made_up", ast.parse(text)))
    assert taken(ours) == expected
