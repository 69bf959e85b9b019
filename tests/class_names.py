"""Reads from the sources which names a class defines and which it inherits. Nothing of the package is imported unless
a class is written in C, so Ray's classes for vLLM can be read without vLLM."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from operator import attrgetter
from pathlib import Path

ROOT = Path(__file__).parents[1]
Function = ast.FunctionDef | ast.AsyncFunctionDef


class NotInstalledError(Exception):
    """The package of a base class is not installed, so the names of the class cannot be read."""


class UnreadableError(Exception):
    """No class was found for a base of a class."""


@dataclass(frozen=True)
class Source:
    """A module: its name, its syntax tree, and whether the module is a package."""

    module: str
    tree: ast.Module
    is_package: bool = False

    @property
    def package(self) -> str:
        """The first part of the module's name."""
        return self.module.partition(".")[0]

    def imported_module(self, statement: ast.ImportFrom) -> str:
        """The full name of the module that a `from … import` of this module names."""
        parts = self.module.split(".")
        parents = parts[: len(parts) - statement.level + self.is_package] if statement.level else []
        return ".".join([*parents, *([statement.module] if statement.module else [])])


@dataclass(frozen=True)
class ClassSource:
    """A class and the module that it is in."""

    source: Source
    node: ast.ClassDef


@dataclass(frozen=True)
class Names:
    """The names that a class defines.

    `body`: in its body. `data`: those of `body` that are not functions or classes, and `with_value`: those of `data`
    that get a value. `on_self`: by an assignment to an attribute of a method's first argument. `overrides`: the
    functions with the decorator `override`.
    """

    body: frozenset[str]
    data: frozenset[str] = frozenset()
    with_value: frozenset[str] = frozenset()
    on_self: frozenset[str] = frozenset()
    overrides: frozenset[str] = frozenset()


@cache
def source_of(module: str) -> Source | None:
    """A module's source; None if the module does not exist or is not in Python. Raises `NotInstalledError`."""
    package, *parts = module.split(".")
    spec = PathFinder.find_spec(package, [str(ROOT), *sys.path])
    if spec is None and package not in sys.builtin_module_names:
        raise NotInstalledError(package)
    if parts:
        folders = [Path(folder, *parts) for folder in (spec and spec.submodule_search_locations) or []]
        files = [file for folder in folders for file in (folder / "__init__.py", folder.with_suffix(".py"))]
    else:
        files = [Path(spec.origin)] if spec and spec.origin else []
    for file in files:
        if file.suffix == ".py" and file.is_file():
            return Source(module, ast.parse(file.read_bytes()), file.name == "__init__.py")
    return None


def find(source: Source, path: str) -> ClassSource | type | None:
    """The class that `path`, for example `logging.Formatter`, names in a module; a `type` if it is not in Python."""
    name, _, rest = path.partition(".")
    star_imports = []
    for node in ast.walk(source.tree):
        match node:
            case ast.ClassDef() if node.name == path:
                return ClassSource(source, node)
            case ast.Assign(targets=[ast.Name(id=target)], value=ast.Name() | ast.Attribute()) if target == path:
                return find(source, ast.unparse(node.value))
            case ast.Import():
                for alias in node.names:
                    if path.startswith(f"{alias.asname or alias.name}."):
                        return _find_in(alias.name, path.removeprefix(f"{alias.asname or alias.name}."))
            case ast.ImportFrom():
                module = source.imported_module(node)
                for alias in node.names:
                    if alias.name == "*":
                        star_imports.append(module)
                    elif name == (alias.asname or alias.name) and module != source.module:  # else a submodule of this
                        return _find_in(module, f"{alias.name}.{rest}" if rest else alias.name)
    for module in star_imports:
        if imported := _find_in(module, path):
            return imported
    return _imported("builtins", path)


@cache
def _find_in(module: str, path: str) -> ClassSource | type | None:
    source = source_of(module)
    if source and (result := find(source, path)):
        return result
    submodule, _, rest = path.partition(".")
    if rest and source_of(f"{module}.{submodule}"):
        return _find_in(f"{module}.{submodule}", rest)
    if (module, path) == ("typing", "NamedTuple"):  # a function, which makes tuples
        return tuple
    return _imported(module, path)


def _imported(module: str, path: str) -> type | None:
    """A class that is written in C, or made by a call."""
    try:
        made = attrgetter(path)(importlib.import_module(module))
    except (ImportError, AttributeError):  # the name is of another of the modules that may have it
        return None
    made = getattr(made, "__origin__", made)  # `typing.Iterable` stands for a class of collections.abc
    return made if isinstance(made, type) else None


@cache
def ancestors(child: ClassSource) -> list[ClassSource | type | NotInstalledError]:
    """All classes that a class inherits from. A base whose package is not installed is given as the error."""
    classes: list[ClassSource | type | NotInstalledError] = []
    for base in child.node.bases:
        path = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
        try:
            parent = find(child.source, path)
        except NotInstalledError as error:
            classes.append(error)
            continue
        if parent is None:
            raise UnreadableError(f"{child.source.module}: {child.node.name} inherits from {path}")
        classes += [parent, *(ancestors(parent) if isinstance(parent, ClassSource) else [])]
    return classes


@cache
def names_of(defined: ClassSource | type) -> Names:
    """The names that a class itself defines."""
    if isinstance(defined, type):
        return Names(frozenset(dir(defined)))
    functions, data, with_value, on_self, overrides = (set[str]() for _ in range(5))
    for statement in _statements(defined.node.body):
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                functions.add(statement.name)
                on_self.update(_assigned_to_self(statement))
                decorators = [ast.unparse(decorator) for decorator in statement.decorator_list]
                if any(decorator.split(".")[-1] == "override" for decorator in decorators):
                    overrides.add(statement.name)
            case ast.ClassDef():
                functions.add(statement.name)
            case ast.Assign() | ast.AnnAssign():
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                assigned = {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
                data |= assigned
                with_value |= assigned if statement.value else set()
    return Names(*map(frozenset, (functions | data, data, with_value, on_self, overrides)))


def _statements(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a class's body, also those within `if` and `try`."""
    for statement in block:
        yield statement
        if isinstance(statement, ast.If | ast.Try):
            yield from _statements([*statement.body, *statement.orelse])
            for handler in getattr(statement, "handlers", []):
                yield from _statements(handler.body)


def _assigned_to_self(function: Function) -> Iterator[str]:
    if arguments := [*function.args.posonlyargs, *function.args.args]:
        for node in ast.walk(function):
            match node:
                case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store()) if name == arguments[0].arg:
                    yield node.attr
