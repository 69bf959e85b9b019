"""Prometheus scrapes targets that exist, and its rules fire when they should; Grafana's dashboard of Ray uses metrics
that this version of Ray has. test_deploy_grafana.py tests coevo's own dashboard."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.dashboard.modules.metrics.dashboards import default_dashboard_panels, serve_dashboard_panels

from orchestrator.installation.home import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
PROMETHEUS = ROOT / "deploy" / "prometheus" / "prometheus.yml"
RULES = PROMETHEUS.with_name("rules.yml")
JOBS = {job["job_name"]: job for job in yaml.safe_load(PROMETHEUS.read_text())["scrape_configs"]}
GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "ray.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_prometheus_scrapes_every_ray_node_at_the_port_that_the_node_uses() -> None:
    (discovery,) = JOBS["ray"]["dns_sd_configs"]
    nodes = [s for name, s in COMPOSE["services"].items() if name.startswith("ray-")]
    assert [node["networks"]["ray"]["aliases"] for node in nodes] == [discovery["names"]] * len(nodes)
    assert all(f"--metrics-export-port={discovery['port']}" in node["command"] for node in nodes)
    runner = (ROOT / "orchestrator" / "runner" / "process.py").read_text()
    assert f'"--metrics-export-port={discovery["port"]}"' in runner


def test_prometheus_scrapes_the_api_with_the_key_that_compose_gives_it() -> None:
    (target,) = JOBS["coevo"]["static_configs"][0]["targets"]
    service, port = target.split(":")
    assert port == COMPOSE["services"][service]["command"][-1]
    assert JOBS["coevo"].get("metrics_path", "/metrics") == "/metrics"
    prometheus = COMPOSE["services"]["prometheus"]
    assert prometheus["environment"]["PROMETHEUS_API_KEY"] == "${PROMETHEUS_API_KEY:-none}"
    file = JOBS["coevo"]["authorization"]["credentials_file"]
    assert f'printf %s "$$PROMETHEUS_API_KEY" > {file} ' in prometheus["entrypoint"][2]
    assert any(mounted.startswith(f"{Path(file).parent}:") for mounted in prometheus["tmpfs"])


def test_prometheus_finds_its_rules_and_they_use_documented_metrics() -> None:
    mounts = dict(volume.split(":")[:2] for volume in COMPOSE["services"]["prometheus"]["volumes"])
    (rule_file,) = yaml.safe_load(PROMETHEUS.read_text())["rule_files"]
    folder = Path(mounts["./deploy/prometheus/prometheus.yml"]).parent
    assert str(folder / rule_file) == mounts["./deploy/prometheus/rules.yml"]
    documented = set(re.findall(r"`(coevo_[a-z_]+)`", (ROOT / "docs" / "alerts.md").read_text()))
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    metrics = {name for rule in group["rules"] for name in re.findall(r"\bcoevo_\w+", rule["expr"])}
    assert metrics
    assert metrics <= documented


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on this machine")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    """The configuration's rules, and a file with a key, are where Prometheus would look for them."""
    key = tmp_path / "api-key"
    key.write_text("coevo_key")
    (tmp_path / "rules.yml").write_text(RULES.read_text())
    configuration = tmp_path / "prometheus.yml"
    configuration.write_text(PROMETHEUS.read_text().replace("/run/coevo/api-key", str(key)))
    done = promtool("check", "config", configuration)
    assert done.returncode == 0, done.stderr
    assert "12 rules found" in done.stdout


def test_each_rule_fires_in_promtool_s_simulation_when_it_should(tmp_path: Path) -> None:
    cases = yaml.safe_load((Path(__file__).parent / "prometheus_rules.yml").read_text())
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    fires = {
        rule_test["alertname"]
        for case in cases["tests"]
        for rule_test in case["alert_rule_test"]
        if rule_test["exp_alerts"]
    }
    assert fires == {rule["alert"] for rule in group["rules"]}
    test_file = tmp_path / "tests.yml"
    test_file.write_text(yaml.safe_dump({**cases, "rule_files": [str(RULES)]}))
    done = promtool("test", "rules", test_file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    (source,) = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "coevo.yml").read_text())["providers"]
    mounts = dict(volume.split(":")[:2] for volume in COMPOSE["services"]["grafana"]["volumes"])
    assert source["url"] == "http://prometheus:9090"
    assert provider["options"]["path"] == mounts["./deploy/grafana/dashboards"]
    sources = {target["datasource"]["uid"] for panel in DASHBOARD["panels"] for target in panel["targets"]}
    assert sources == {source["uid"]}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_dashboard_s_metrics_are_in_ray_s_own_dashboards(expression: str) -> None:
    """Ray's own dashboards have the names that this version of Ray exports; after a rename our panels would be
    empty."""
    known = inspect.getsource(default_dashboard_panels) + inspect.getsource(serve_dashboard_panels)
    used = set(re.findall(r"ray_\w+", expression))
    assert used
    assert used <= set(re.findall(r"ray_\w+", known))
