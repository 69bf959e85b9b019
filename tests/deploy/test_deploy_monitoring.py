"""Prometheus: what is scraped exists, and its rules fire when they should; Grafana's dashboard of Ray asks for metrics
that this Ray has. coevo's own dashboard: test_deploy_grafana.py."""

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
JOBS = {each["job_name"]: each for each in yaml.safe_load(PROMETHEUS.read_text())["scrape_configs"]}
GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "ray.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_prometheus_asks_every_ray_node_at_the_port_that_it_is_told_to_use() -> None:
    (found,) = JOBS["ray"]["dns_sd_configs"]
    nodes = [s for name, s in COMPOSE["services"].items() if name.startswith("ray-")]
    assert [node["networks"]["ray"]["aliases"] for node in nodes] == [found["names"]] * len(nodes)
    assert all(f"--metrics-export-port={found['port']}" in node["command"] for node in nodes)
    runner = (ROOT / "orchestrator" / "installation" / "runner.py").read_text()
    assert f'"--metrics-export-port={found["port"]}"' in runner


def test_prometheus_asks_the_api_with_the_key_that_compose_gives_it() -> None:
    (target,) = JOBS["coevo"]["static_configs"][0]["targets"]
    service, port = target.split(":")
    assert port == COMPOSE["services"][service]["command"][-1]
    assert JOBS["coevo"].get("metrics_path", "/metrics") == "/metrics"
    prometheus = COMPOSE["services"]["prometheus"]
    assert prometheus["environment"]["PROMETHEUS_API_KEY"] == "${PROMETHEUS_API_KEY:-none}"
    file = JOBS["coevo"]["authorization"]["credentials_file"]
    assert f'printf %s "$$PROMETHEUS_API_KEY" > {file} ' in prometheus["entrypoint"][2]
    assert any(mounted.startswith(f"{Path(file).parent}:") for mounted in prometheus["tmpfs"])


def test_prometheus_finds_its_rules_and_their_metrics_are_ours() -> None:
    mounts = dict(volume.split(":")[:2] for volume in COMPOSE["services"]["prometheus"]["volumes"])
    (named,) = yaml.safe_load(PROMETHEUS.read_text())["rule_files"]
    folder = Path(mounts["./deploy/prometheus/prometheus.yml"]).parent
    assert str(folder / named) == mounts["./deploy/prometheus/rules.yml"]
    documented = set(re.findall(r"`(coevo_[a-z_]+)`", (ROOT / "docs" / "metrics.md").read_text()))
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    asked = {name for rule in group["rules"] for name in re.findall(r"\bcoevo_\w+", rule["expr"])}
    assert asked
    assert asked <= documented


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on this machine")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def test_promtool_takes_the_configuration(tmp_path: Path) -> None:
    """With its rules, and a key where Prometheus would look for one."""
    key = tmp_path / "api-key"
    key.write_text("coevo_key")
    (tmp_path / "rules.yml").write_text(RULES.read_text())
    given = tmp_path / "prometheus.yml"
    given.write_text(PROMETHEUS.read_text().replace("/run/coevo/api-key", str(key)))
    done = promtool("check", "config", given)
    assert done.returncode == 0, done.stderr
    assert "6 rules found" in done.stdout


def test_promtool_finds_that_each_rule_fires_when_it_should(tmp_path: Path) -> None:
    cases = yaml.safe_load((Path(__file__).parent / "prometheus_rules.yml").read_text())
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    fires = {each["alertname"] for case in cases["tests"] for each in case["alert_rule_test"] if each["exp_alerts"]}
    assert fires == {rule["alert"] for rule in group["rules"]}
    given = tmp_path / "tests.yml"
    given.write_text(yaml.safe_dump({**cases, "rule_files": [str(RULES)]}))
    done = promtool("test", "rules", given)
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    (source,) = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "coevo.yml").read_text())["providers"]
    mounts = dict(volume.split(":")[:2] for volume in COMPOSE["services"]["grafana"]["volumes"])
    assert source["url"] == "http://prometheus:9090"
    assert provider["options"]["path"] == mounts["./deploy/grafana/dashboards"]
    sources = {target["datasource"]["uid"] for panel in DASHBOARD["panels"] for target in panel["targets"]}
    assert sources == {source["uid"]}


def test_panels_are_distinct_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels]
    assert len(set(cells)) == len(panels)
    assert all(p["gridPos"]["w"] == 12 and p["gridPos"]["h"] == 8 and p["gridPos"]["y"] % 8 == 0 for p in panels)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_its_metrics_are_those_of_rays_own_dashboards(expression: str) -> None:
    """Which are the names that this version of Ray exports; a rename would leave our panels empty without a word."""
    known = inspect.getsource(default_dashboard_panels) + inspect.getsource(serve_dashboard_panels)
    asked = set(re.findall(r"ray_\w+", expression))
    assert asked
    assert asked <= set(re.findall(r"ray_\w+", known))
