"""The settings of a preset that a caller may change when a run is started."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, get_args

from fastapi.exceptions import RequestValidationError
from pydantic import Field
from typing_extensions import TypeAliasType

from core.settings.config import RunConfig
from core.settings.parsing import OVERRIDES, ConfigError, changed_despite_faults, read_preset
from core.settings.trees import by_dotted_names
from core.types import TINY_BASES
from core.validation.faults import Fault
from core.validation.suggestions import no_such
from services.api.installation import Installation
from services.api.problems import invalid

_HARMLESS = "a number or a word that settings choose among, or a benchmark's or a suite's name"
_Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Word = Annotated[str, Field(max_length=100)]
_Value = bool | _Whole | _Number | _Word | Annotated[list[_Number], Field(max_length=100)] | None
# No leading underscore, because Prefect fills in a parameter named `__prefect_kind` from its templates and variables.
Setting = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){0,5}$", max_length=100)]
Override = TypeAliasType("Override", "_Value | dict[Setting, Override]")  # a table has overrides of its own


def configured(
    installation: Installation, preset: str, iterations: int | None, overrides: Mapping[str, Override]
) -> RunConfig:
    """The configuration that the flow will make of a preset and the overrides, so that errors are reported at once.
    Raises what `changed` raises."""
    presets = installation.preset_files()
    path = presets.get(preset)
    if path is None:
        raise invalid("preset", f"{preset}: {no_such('preset', sorted(presets), preset)}")
    try:
        tree = read_preset(path)
    except ConfigError as error:
        raise invalid("preset", str(error).replace(str(path), preset)) from error
    return changed(installation, "preset", preset, tree, iterations, overrides)


def changed(
    installation: Installation,
    field: str,
    source: str,
    tree: Mapping[str, Any],
    iterations: int | None,
    overrides: Mapping[str, Override],
) -> RunConfig:
    """The configuration of a tree with other values. `field` is that of the request that names the tree, as `source`.

    Raises `RequestValidationError` with all faults, each with its field. A text must be one of the words that settings
    choose among, or the name of a benchmark or a suite of the server. Any other text names a file, program or address
    of the server, which a caller must not choose.
    """
    length = {"iterations": iterations} if iterations else {}
    settings = by_dotted_names(overrides)
    config, faults = changed_despite_faults(tree, source, {**settings, **length})
    wrong, words = {fault.setting for fault in faults}, _words() | installation.question_sets.names
    faults += [
        Fault(name, f"{value!a}", _HARMLESS, source=OVERRIDES)
        for name, value in settings.items()
        if isinstance(value, str) and value not in words and name not in wrong
    ]
    if config is None or faults:
        raise RequestValidationError(
            [
                {"loc": ("body", field), "msg": str(fault)}
                if fault.source is None  # it is in the tree itself
                else {"loc": ("body", "overrides", fault.setting), "msg": fault.problem}
                for fault in faults
            ]
        )
    return config


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
