"""The KubeRay manifests, checked by Kubernetes' schemas, by Serve's, and by what coevo needs."""

from __future__ import annotations

import copy
import json
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from core.settings.parsing import load_config
from core.settings.trainers import EasyR1Settings
from orchestrator.check.size.shapes import shape_of
from orchestrator.installation.home import PRESETS, ROOT
from orchestrator.serving.applications import ROLES
from tests.deploy.schemas import trim_kuberay

FOLDER = ROOT / "deploy" / "kuberay"
SCHEMAS = Path(__file__).parent / "schemas"
OBJECTS: dict[str, dict[str, Any]] = {
    f"{file.stem}/{manifest['kind']}": manifest
    for file in sorted(FOLDER.glob("*.yaml"))
    for manifest in yaml.safe_load_all(file.read_text())
}
RAY = [name for name, manifest in OBJECTS.items() if manifest["apiVersion"] == "ray.io/v1"]
KUBERNETES = "1.33"
SERVED: dict[str, Any] = yaml.safe_load(OBJECTS["rayservice/RayService"]["spec"]["serveConfigV2"])


def cluster(name: str) -> dict[str, Any]:
    """The Ray cluster of a RayCluster or a RayService."""
    spec: dict[str, Any] = OBJECTS[name]["spec"]
    cluster_spec: dict[str, Any] = spec.get("rayClusterConfig", spec)
    return cluster_spec


def templates() -> dict[str, dict[str, Any]]:
    """Every pod template, by its manifest and group."""
    by_name = {name: OBJECTS[name]["spec"]["template"] for name in ("runner/StatefulSet", "api/Deployment")}
    for name in RAY:
        by_name[f"{name}/head"] = cluster(name)["headGroupSpec"]["template"]
        by_name |= {f"{name}/{group['groupName']}": group["template"] for group in cluster(name)["workerGroupSpecs"]}
    return by_name


each_template = pytest.mark.parametrize("name", sorted(templates()))


@pytest.mark.parametrize("name", sorted(set(OBJECTS) - set(RAY)))
def test_objects_follow_kubernetes_schemas(name: str) -> None:
    kubernetes_validate.validate(OBJECTS[name], KUBERNETES, strict=True)


@each_template
def test_pod_templates_follow_kubernetes_schemas(name: str) -> None:
    template = templates()[name]
    pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "checked"}, "template": template}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)


@pytest.mark.parametrize("name", RAY)
def test_ray_objects_follow_kuberay_s_definitions(name: str) -> None:
    kuberay(OBJECTS[name]).validate(OBJECTS[name])
    assert cluster(name)["rayVersion"] == version("ray")


def kuberay(ray_object: dict[str, Any]) -> jsonschema.Draft202012Validator:
    """A validator of the object's kind, from KubeRay's own definitions."""
    definitions = json.loads((SCHEMAS / "kuberay.json").read_text())
    return jsonschema.Draft202012Validator(definitions[ray_object["kind"]])


@pytest.mark.parametrize("name", RAY)
@pytest.mark.parametrize(
    ("field", "value"), [("replica", 1), ("replicas", "one"), ("rayStartParams", {"num-cpus": 0}), ("groupName", None)]
)
def test_a_wrong_field_in_a_ray_object_is_refused(name: str, field: str, value: Any) -> None:
    wrong = copy.deepcopy(OBJECTS[name])
    spec = wrong["spec"]
    spec.get("rayClusterConfig", spec)["workerGroupSpecs"][0][field] = value
    with pytest.raises(jsonschema.ValidationError):
        kuberay(wrong).validate(wrong)


def test_the_stored_definitions_are_those_of_kuberay_s_release() -> None:
    checkout = os.environ.get("KUBERAY_CHECKOUT")
    if not checkout:
        pytest.skip("KUBERAY_CHECKOUT names no checkout of KubeRay")
    stored = json.loads((SCHEMAS / "kuberay.json").read_text())
    assert trim_kuberay.definitions(Path(checkout)) == stored


@each_template
def test_pods_are_not_root_and_cannot_become_it(name: str) -> None:
    spec = templates()[name]["spec"]
    assert spec["automountServiceAccountToken"] is False
    confined = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["securityContext"].items() >= confined.items()  # 1000 is the image's user
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        writable = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"/tmp", "/home/coevo"} <= writable


@each_template
def test_pods_have_a_pinned_image_probes_resources_and_a_shared_folder(name: str) -> None:
    spec = templates()[name]["spec"]
    (container,) = spec["containers"]
    assert re.fullmatch(r"coevo:\d+\.\d+\.\d+-(gpu|easyr1)", container["image"])
    ports = {port["name"] for port in container["ports"]}
    named = [probe["httpGet"]["port"] for key, probe in container.items() if key.endswith("Probe")]
    assert ports >= {port for port in named if isinstance(port, str)}
    assert "metrics" in ports or name == "api/Deployment"  # the API serves its metrics at its only port
    assert {"livenessProbe", "readinessProbe"} <= container.keys()
    assert container["resources"]["requests"].keys() >= {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    claims = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in spec["volumes"][:1]}
    mount = container["volumeMounts"][0]
    assert mount["mountPath"] == "/var/lib/coevo"
    declared = {manifest["metadata"]["name"]: manifest for manifest in OBJECTS.values() if "Claim" in manifest["kind"]}
    assert declared[claims[mount["name"]]]["spec"]["accessModes"] == ["ReadWriteMany"]


@pytest.mark.parametrize("name", RAY)
def test_workers_have_gpus_and_the_head_runs_no_work(name: str) -> None:
    assert cluster(name)["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    for group in cluster(name)["workerGroupSpecs"]:
        resources = group["template"]["spec"]["containers"][0]["resources"]
        assert resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"] > 0


def test_the_rayservice_serves_two_fixed_models_and_no_model_that_coevo_swaps() -> None:
    config = ServeDeploySchema.model_validate(SERVED)
    assert [application.name for application in config.applications] == ["judge", "embedder"]
    assert not {"judge", "embedder"} & {*ROLES}
    assert config.http_options.host == "0.0.0.0"
    for application in config.applications:
        assert application.import_path == "ray.serve.llm:build_openai_app"
        (llm,) = application.args["llm_configs"]
        assert application.route_prefix == f"/{application.name}"
        address = f'"http://coevo-fixed-serve-svc:8000/{application.name}/v1", model = "'
        assert address + llm["model_loading_config"]["model_id"] in (FOLDER / "rayservice.yaml").read_text()


def test_the_two_models_fit_the_one_gpu() -> None:
    models = [application["args"]["llm_configs"][0] for application in SERVED["applications"]]
    (group,) = cluster("rayservice/RayService")["workerGroupSpecs"]
    gpus = group["replicas"] * group["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    assert sum(model["placement_group_config"]["bundle_per_worker"]["GPU"] for model in models) <= gpus
    assert sum(model["engine_kwargs"]["gpu_memory_utilization"] for model in models) < 1


def test_ray_serve_accepts_each_model_as_an_llm_config() -> None:
    llm = pytest.importorskip("ray.serve.llm", reason="ray[llm] is not installed", exc_type=ImportError)
    for application in SERVED["applications"]:
        for model in application["args"]["llm_configs"]:
            llm.LLMConfig.model_validate(model)


def test_the_runner_joins_the_cluster_of_the_raycluster() -> None:
    environment = {e["name"]: e for e in templates()["runner/StatefulSet"]["spec"]["containers"][0]["env"]}
    head = f"{OBJECTS['raycluster/RayCluster']['metadata']['name']}-head-svc"  # KubeRay gives the service this name
    assert environment["COEVO_RAY_ADDRESS"]["value"] == f"{head}:6379"
    assert environment["COEVO_RAY_DASHBOARD_URL"]["value"] == f"http://{head}:8265"
    assert environment["COEVO_SERVE_URL"]["value"] == f"http://{head}:8000"
    secret = environment["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert secret == {"name": cluster("raycluster/RayCluster")["authOptions"]["secretName"], "key": "auth_token"}
    images = {t["spec"]["containers"][0]["image"] for name, t in templates().items() if "rayservice" not in name}
    assert len(images) == 1


def test_the_runner_has_the_memory_to_merge_and_check_an_easyr1_checkpoint() -> None:
    """The merger reads all shards, 4 bytes a parameter; then the merged model is loaded, 2 bytes a parameter."""
    configs = map(load_config, PRESETS.glob("*.toml"))
    by_easyr1 = [config.base_model for config in configs if isinstance(config.trainer, EasyR1Settings)]
    largest = max(shape_of(base_model).parameters for base_model in by_easyr1)
    spec = templates()["runner/StatefulSet"]["spec"]
    resources, volumes = spec["containers"][0]["resources"], {volume["name"]: volume for volume in spec["volumes"]}
    memory, in_shm = (
        int(size.removesuffix("Gi")) * 2**30
        for size in (resources["limits"]["memory"], volumes["shm"]["emptyDir"]["sizeLimit"])
    )
    assert largest > 8e9
    assert memory - in_shm > 6 * largest
    assert resources["requests"]["memory"] == resources["limits"]["memory"]


@pytest.mark.parametrize("name", ["runner/StatefulSet", "api/Deployment"])
def test_pods_of_ours_wait_for_the_tables_and_have_prefect_s_password(name: str) -> None:
    spec = templates()[name]["spec"]
    (container,), (migrate,) = spec["containers"], spec["initContainers"]
    assert migrate["command"] == ["coevo", "store", "migrate"]
    assert migrate["image"] == container["image"]
    environment = {variable["name"]: variable for variable in container["env"]}
    assert migrate["env"] == [environment["COEVO_DATABASE"]]
    password = environment["PREFECT_API_AUTH_STRING"]["valueFrom"]
    assert password == {"secretKeyRef": {"name": "coevo", "key": "prefect-auth"}}
    documented = (ROOT / "docs" / "deploying.md").read_text()
    assert "--from-literal=prefect-auth=coevo:" in documented
    assert "PREFECT_SERVER_API_AUTH_STRING" in documented


def test_pods_outside_coevo_reach_its_named_ports_only() -> None:
    policy = OBJECTS["network/NetworkPolicy"]["spec"]
    assert policy["podSelector"] == {}
    assert policy["policyTypes"] == ["Ingress"]
    (own, *others) = policy["ingress"]
    assert own == {"from": [{"podSelector": {}}]}
    named = {p["containerPort"]: p["name"] for t in templates().values() for p in t["spec"]["containers"][0]["ports"]}
    allowed = [{named[port["port"]] for port in rule["ports"]} for rule in others]
    assert allowed == [{"metrics"}, {"dashboard", "serve"}]


def test_no_manifest_holds_a_secret() -> None:
    assert not [manifest["kind"] for manifest in OBJECTS.values() if manifest["kind"] == "Secret"]
    for template in templates().values():
        for variable in template["spec"]["containers"][0].get("env", []):
            if re.search(r"TOKEN|DATABASE|PASSWORD|AUTH|PREFECT_API_URL", variable["name"]):
                assert "secretKeyRef" in variable["valueFrom"]
