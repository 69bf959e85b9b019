"""The presets from which a caller may start a run, and the settings of a preset that a caller may change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import Field
from typing_extensions import TypeAliasType

from core.faults import Fault
from core.settings.config import RunConfig
from core.settings.evaluation import Suite
from core.settings.parsing import OVERRIDES, ConfigError, load_despite_faults
from core.settings.trees import by_dotted_names
from core.suggestions import no_such
from core.types import TINY_BASES
from services.api.problems import invalid

_HARMLESS = "a number or a word that settings choose among, or a benchmark's or a suite's name"
_Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Word = Annotated[str, Field(max_length=100)]
_Value = bool | _Whole | _Number | _Word | Annotated[list[_Number], Field(max_length=100)] | None
# No leading underscore, because Prefect fills in a parameter named `__prefect_kind` from its templates and variables.
Setting = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){0,5}$", max_length=100)]
Override = TypeAliasType("Override", "_Value | dict[Setting, Override]")  # a table has overrides of its own


# Takes a preset's name and says what it needs and costs, as `PresetDetails`. Raises `CoevoError` if that is not known.
DescribePreset = Callable[[str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class QuestionSets:
    """The names of the benchmarks that this server has, and its suites by name."""

    benchmarks: tuple[str, ...] = ()
    suites: Mapping[str, Suite] = field(default_factory=dict)

    def refuse_unknown(self, benchmarks: Sequence[str], suite: str | None, where: str, field: str) -> None:
        """Raise `RequestValidationError` if a benchmark or the suite is not one of these, or none is named.

        `where` is the part of the request, "body" or "query", and `field` its field with the benchmarks.
        """
        for name in benchmarks:
            if name not in self.benchmarks:
                raise invalid(field, f"expected one of {', '.join(self.benchmarks) or 'none'}, got {name!a}", where)
        if suite is not None and suite not in self.suites:
            raise invalid("suite", f"expected one of {', '.join(self.suites) or 'none'}, got {suite!a}", where)
        if not benchmarks and suite is None:
            raise invalid(field, "expected a benchmark's name or a suite, got none", where)


def _names(request: Request) -> frozenset[str]:
    names: QuestionSets = request.app.state.question_sets
    return frozenset([*names.benchmarks, *names.suites])


def _presets(request: Request) -> dict[str, Path]:
    folder: Path | None = request.app.state.presets
    return {} if folder is None else {path.stem: path for path in folder.glob("*.toml")}


def _describe(request: Request) -> DescribePreset | None:
    describe: DescribePreset | None = request.app.state.describe_preset
    return describe


Presets = Annotated[dict[str, Path], Depends(_presets)]  # name -> file
Describe = Annotated[DescribePreset | None, Depends(_describe)]
Names = Annotated[frozenset[str], Depends(_names)]  # of benchmarks and suites


def configured(
    presets: Presets, names: Names, preset: str, iterations: int | None, overrides: Mapping[str, Override]
) -> RunConfig:
    """The configuration that the flow will make of a preset and the overrides, so that errors are reported at once.

    Raises `RequestValidationError` with all faults, each with its field. A text must be one of the words that settings
    choose among, or one of `names`. Any other text names a file, program or address of the server, which a caller must
    not choose.
    """
    path = presets.get(preset)
    if path is None:
        raise invalid("preset", f"{preset}: {no_such('preset', sorted(presets), preset)}")
    length = {"iterations": iterations} if iterations else {}
    settings = by_dotted_names(overrides)
    try:
        config, faults = load_despite_faults(path, {**settings, **length})
    except ConfigError as error:
        raise invalid("preset", str(error).replace(str(path), preset)) from error
    wrong = {fault.setting for fault in faults}
    faults += [
        Fault(name, f"{value!a}", _HARMLESS, source=OVERRIDES)
        for name, value in settings.items()
        if isinstance(value, str) and value not in _words() | names and name not in wrong
    ]
    if config is None or faults:
        raise RequestValidationError([_problem(fault) for fault in faults])
    return config


def _problem(fault: Fault) -> dict[str, Any]:
    """A fault in the form of FastAPI's errors. One without a source is in the preset's own file."""
    if fault.source is None:
        return {"loc": ("body", "preset"), "msg": str(fault)}
    return {"loc": ("body", "overrides", fault.setting), "msg": fault.problem}


@cache
def _words() -> frozenset[str]:
    """All words that settings choose among, and the names of prompt sets that are not files."""
    words = {*TINY_BASES, "benchmark", "none"}  # `none` is an oracle
    nodes: list[Any] = [kind.model_json_schema() for kind in get_args(RunConfig)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            words.update(word for word in [node.get("const"), *node.get("enum", [])] if isinstance(word, str))
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node
    return frozenset(words - {""})  # an empty path is the working folder
