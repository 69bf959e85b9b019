"""A run's page as one file that needs no server: its scripts, its style and the API's answers are inside.

The file is `report.html` with each file that it names put in its place. Its content security policy allows these very
scripts and styles by their hashes, and no request at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from services.dashboard.pages import HERE, PLOT_STYLE

_INLINED = re.compile(r'<(?:link rel="(style)sheet" href|(script)( type="module")? src)="/([^"]+)">(?:</script>)?')
# The forms in which the dashboard's modules import and export.
_IMPORT = re.compile(r'^import (\{[^}]+\}) from "([^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_EXPORTS = re.compile(r"^export \{([^}]+)\};$", re.MULTILINE)


def one_file(report: Mapping[str, Any]) -> str:
    """The page in which `report` takes the place of a server: api.js has its type."""
    hashes: dict[str, list[str]] = {"script": [], "style": [f"'{PLOT_STYLE}'"]}

    def inlined(tag: re.Match[str]) -> str:
        name, attributes, file = tag[1] or tag[2], tag[3] or "", tag[4]
        text = bundle(file) if attributes else (HERE / file).read_text(encoding="utf-8")
        if f"</{name}" in text.lower():
            raise ValueError(f"{file}: expected a {name} without its own end tag")
        hashes[name].append(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'")
        return f"<{name}{attributes}>{text}</{name}>"

    page = _INLINED.sub(inlined, (HERE / "report.html").read_text(encoding="utf-8"))
    sources = (f"{name}-src {' '.join(allowed)}" for name, allowed in hashes.items())
    fixed = "default-src 'none'; img-src data:; connect-src 'none'; base-uri 'none'; form-action 'none'"
    # Without "<", no text in the JSON can end the element that it is in, or begin another.
    data = json.dumps(report, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return page.replace("{{policy}}", "; ".join((fixed, *sources)), 1).replace("{{report}}", data, 1)


def bundle(entry: str) -> str:
    """The module `entry` and all that it imports as one script. A browser does not load modules from files.

    Each module becomes a function that is called once and returns what the module exports, after the modules that it
    imports. `entry` is a path below this folder.

    Raises `ValueError` if modules import one another, or import or export in another form than `_IMPORT`.
    """
    scopes: dict[str, str] = {}  # file -> the variable with its exports

    def add(file: str) -> list[str]:
        if file in scopes:
            if not scopes[file]:
                raise ValueError(f"{file}: it imports a module that imports it")
            return []
        scopes[file] = ""
        source, before = (HERE / file).read_text(encoding="utf-8"), list[str]()
        for _, path in _IMPORT.findall(source):
            before += add(_resolved(file, path))
        exported = [*_EXPORT.findall(source), *_EXPORTS.findall(source)]
        body = _IMPORT.sub(lambda found: f"const {found[1]} = {scopes[_resolved(file, found[2])]};", source)
        body = _EXPORTS.sub("", _EXPORT.sub("", body))
        if left := re.search(r"^(?:import|export)\b.*$", body, re.MULTILINE):
            raise ValueError(f"{file}: expected imports and exports in the usual form, got {left[0]!r}")
        scopes[file] = "$" + re.sub(r"\W", "_", file)
        return [*before, f"const {scopes[file]} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();\n"]

    return "".join(add(entry))


def _resolved(importer: str, path: str) -> str:
    """The path of an imported file below this folder."""
    return posixpath.normpath(posixpath.join("/", posixpath.dirname(importer), path)).removeprefix("/")
