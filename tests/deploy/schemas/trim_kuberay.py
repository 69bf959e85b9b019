"""Writes kuberay.json from a checkout of KubeRay (https://github.com/ray-project/kuberay, Apache-2.0) at its release:

    python tests/deploy/schemas/trim_kuberay.py ../kuberay

What is kept of its definitions of RayCluster and RayService (ray.io/v1) is every field's name, type, limits and what is
required; a field that they do not have is refused, as a server does with strict validation. Left out are prose, the
status, the insides of Kubernetes' own objects (pod templates, services), which other schemas check, and the insides of
options that our manifests do not use.
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
_ANYTHING |= {"gcsFaultToleranceOptions", "historyServerOptions", "networkPolicy"}  # of KubeRay's own, not used here
_KEPT = {"type", "required", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems"}
_FILE = Path(__file__).parent / "kuberay.json"


def trimmed(schema: dict[str, Any]) -> dict[str, Any]:
    """An OpenAPI v3 schema as Kubernetes writes it, as a JSON schema without prose that refuses unknown fields."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {name: schema[name] for name in _KEPT & schema.keys()}
    if "properties" in schema:
        found = {name: {} if name in _ANYTHING else trimmed(each) for name, each in schema["properties"].items()}
        made |= {"properties": found, "additionalProperties": False}
    elif isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = trimmed(schema["additionalProperties"])
    if "items" in schema:
        made["items"] = trimmed(schema["items"])
    return made


def definitions(checkout: Path) -> dict[str, Any]:
    """The two kinds' schemas, by kind, as the release has them."""
    found: dict[str, Any] = {
        "$comment": f"Made by trim_kuberay.py of KubeRay {RELEASE} (Apache-2.0); not to be edited."
    }
    for kind, plural in KINDS.items():
        path = f"{RELEASE}:ray-operator/config/crd/bases/ray.io_{plural}.yaml"
        text = subprocess.run(["git", "-C", checkout, "show", path], capture_output=True, text=True, check=True).stdout
        [version] = [each for each in yaml.safe_load(text)["spec"]["versions"] if each["name"] == "v1"]
        schema = trimmed(version["schema"]["openAPIV3Schema"])
        del schema["properties"]["status"]
        schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
        schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
        found[kind] = schema
    return found


if __name__ == "__main__":
    _FILE.write_text(json.dumps(definitions(Path(sys.argv[1])), indent=1, sort_keys=True) + "\n")
