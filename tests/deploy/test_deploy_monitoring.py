"""Prometheus and Grafana: what is scraped exists, and the dashboard asks for metrics that this Ray has."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml
from ray.dashboard.modules.metrics.dashboards import default_dashboard_panels, serve_dashboard_panels

from orchestrator.home import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
PROMETHEUS = ROOT / "deploy" / "prometheus" / "prometheus.yml"
GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "ray.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_prometheus_asks_every_ray_node_at_the_port_that_it_is_told_to_use() -> None:
    (ray, _) = yaml.safe_load(PROMETHEUS.read_text())["scrape_configs"]
    (found,) = ray["dns_sd_configs"]
    nodes = [s for name, s in COMPOSE["services"].items() if name.startswith("ray-")]
    assert [node["networks"]["default"]["aliases"] for node in nodes] == [found["names"]] * len(nodes)
    assert all(f"--metrics-export-port={found['port']}" in node["command"] for node in nodes)
    runner = (ROOT / "orchestrator" / "runner.py").read_text()
    assert f'"--metrics-export-port={found["port"]}"' in runner


def test_promtool_takes_the_configuration() -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on this machine")
    done = subprocess.run([program, "check", "config", PROMETHEUS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
