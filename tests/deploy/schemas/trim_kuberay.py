"""Writes kuberay.json from a checkout of KubeRay (https://github.com/ray-project/kuberay, Apache-2.0) at its release:

    python tests/deploy/schemas/trim_kuberay.py ../kuberay

Of KubeRay's definitions of RayCluster and RayService (ray.io/v1) it keeps every field's name, type and limits, and
which fields are required. The schemas refuse unknown fields, as a server does with strict validation. It leaves out
prose, the status, the contents of Kubernetes' own objects (pod templates, services), which other schemas check, and the
contents of options that our manifests do not use.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

RELEASE = "v1.7.0"
KINDS = {"RayCluster": "rayclusters", "RayService": "rayservices"}
_ANYTHING = {"template", "headService", "serveService", "autoscalerOptions"}
_ANYTHING |= {"gcsFaultToleranceOptions", "historyServerOptions", "networkPolicy"}  # KubeRay's own, not used here
_KEPT = {"type", "required", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems"}
_FILE = Path(__file__).parent / "kuberay.json"


def trim(schema: dict[str, Any]) -> dict[str, Any]:
    """Turn an OpenAPI v3 schema, as Kubernetes writes it, into a JSON schema without prose that refuses unknown
    fields."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    trimmed = {name: schema[name] for name in _KEPT & schema.keys()}
    if "properties" in schema:
        properties = {name: {} if name in _ANYTHING else trim(part) for name, part in schema["properties"].items()}
        trimmed |= {"properties": properties, "additionalProperties": False}
    elif isinstance(schema.get("additionalProperties"), dict):
        trimmed["additionalProperties"] = trim(schema["additionalProperties"])
    if "items" in schema:
        trimmed["items"] = trim(schema["items"])
    return trimmed


def definitions(checkout: Path) -> dict[str, Any]:
    """The trimmed schemas of the release, by kind."""
    schemas: dict[str, Any] = {
        "$comment": f"Made by trim_kuberay.py of KubeRay {RELEASE} (Apache-2.0); not to be edited."
    }
    for kind, plural in KINDS.items():
        path = f"{RELEASE}:ray-operator/config/crd/bases/ray.io_{plural}.yaml"
        text = subprocess.run(["git", "-C", checkout, "show", path], capture_output=True, text=True, check=True).stdout
        [version] = [candidate for candidate in yaml.safe_load(text)["spec"]["versions"] if candidate["name"] == "v1"]
        trimmed = trim(version["schema"]["openAPIV3Schema"])
        del trimmed["properties"]["status"]
        trimmed["properties"]["metadata"] = {"type": "object", "required": ["name"]}
        trimmed["required"] = ["apiVersion", "kind", "metadata", "spec"]
        schemas[kind] = trimmed
    return schemas


if __name__ == "__main__":
    _FILE.write_text(json.dumps(definitions(Path(sys.argv[1])), indent=1, sort_keys=True) + "\n")
