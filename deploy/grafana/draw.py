"""Makes the panels of a run's figures in dashboards/coevo.json from `core.figures`: `python docs/list_figures.py`.

A panel's place, title and description are in the file; its query and its look follow from its lines here. A figure that
no panel here has gets one of its own below the others. Panels of other things stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.figures import FIGURES, Figure

_FIRST_OWN = 100  # id of the panels of figures that no other panel has
_WIDTH = 120  # of a line of the file
_SLICE, _ORACLE = '"over" = ${slice:sqlstring}', "oracle = ${oracle:sqlstring}"


@dataclass(frozen=True, slots=True)
class Panel:
    """`lines`: the name of a line -> its figure. `only` is a condition of all rows, `where` those of a line's rows."""

    lines: Mapping[str, str]
    only: str = ""
    where: Mapping[str, str] = field(default_factory=dict)
    least: float | None = 0


def _by_slice(figure: str) -> Panel:
    return Panel(dict.fromkeys(("all", "kept"), figure), where={o: f"\"over\" = '{o}'" for o in ("all", "kept")})


PANELS = {  # by id
    2: Panel(
        {"label accuracy": "label_accuracy", "estimate": "label_accuracy"},
        f"{_SLICE} AND {_ORACLE}",
        {"label accuracy": "NOT estimated", "estimate": "estimated"},
    ),
    3: Panel({"held-out accuracy": "held_out", "test-time accuracy": "test_time"}),
    5: Panel({"kept": "kept_share"}, "\"over\" = 'all'"),
    6: _by_slice("p_hat"),
    7: _by_slice("vote_entropy"),
    8: Panel(
        {
            "duplicate": "duplicate_share",
            "malformed": "malformed_share",
            "unparsed": "unparsed_share",
            "truncated": "truncated_share",
            "ill-posed": "ill_posed_share",
            "largest cluster": "largest_cluster_share",
        },
        "\"over\" = 'all'",
        {"ill-posed": _ORACLE},
    ),
    9: _by_slice("response_length"),
    10: Panel(
        {
            "Solver: policy entropy": "policy_entropy",
            "Solver: KL": "kl",
            "Sampler's gap: mean": "sampler_gap",
            "Sampler's gap: largest": "sampler_gap_max",
            "Challenger: policy entropy": "challenger_policy_entropy",
            "Challenger: KL": "challenger_kl",
        },
    ),
    11: Panel(
        {
            "Solver: pseudo-reward": "pseudo_reward",
            "Challenger: reward": "challenger_reward",
            "label accuracy": "label_accuracy",
        },
        where={"label accuracy": f"{_SLICE} AND {_ORACLE} AND NOT estimated"},
        least=None,
    ),
    15: Panel(
        {
            "label accuracy in training": "training_label_accuracy",
            "prompts labelled": "training_labelled_share",
            "accuracy of negative labels": "negative_label_accuracy",
        },
    ),
    16: Panel({"prompts with a label": "positive_labels", "negative labels": "negative_labels"}),
    17: Panel(
        {
            "prompts with a right rollout": "right_prompt_share",
            "rollouts of the majority": "majority_share",
            "undecided rollouts": "undecided_share",
        }
    ),
    18: Panel({"right rollouts": "right_clusters", "wrong rollouts": "wrong_clusters"}),
    19: Panel({"right rollouts": "right_entropy", "wrong rollouts": "wrong_entropy"}),
}


def with_figures(file: str) -> str:
    """The text of the dashboard's file with the panels of figures made anew."""
    dashboard: dict[str, Any] = json.loads(file)
    panels = [panel for panel in dashboard["panels"] if panel["id"] < _FIRST_OWN]
    panels = [panel | (_drawn(PANELS[panel["id"]]) if panel["id"] in PANELS else {}) for panel in panels]
    a_trend = next(panel for panel in panels if panel["id"] in PANELS)
    below = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    placed = {name for panel in PANELS.values() for name in panel.lines.values()}
    for i, figure in enumerate(figure for figure in FIGURES.values() if figure.name not in placed):
        grid_position = {"h": 8, "w": 12, "x": i % 2 * 12, "y": below + i // 2 * 8}
        panels.append(a_trend | {"id": _FIRST_OWN + i, "gridPos": grid_position, **_own_panel(figure)})
    return _json({**dashboard, "panels": panels}) + "\n"


def _own_panel(figure: Figure) -> dict[str, Any]:
    only = "\"over\" IN ('', ${slice:sqlstring}) AND oracle IN ('', ${oracle:sqlstring}) AND NOT estimated"
    title = f"{figure.title} ({figure.shown_unit})" if figure.shown_unit else figure.title
    about = {"title": title, "description": f"{figure.text}. n counts {figure.of}."}
    return {**about, **_drawn(Panel({figure.title: figure.name}, only, least=None))}


def _drawn(panel: Panel) -> dict[str, Any]:
    is_share = all(FIGURES[name].unit == "ratio" for name in panel.lines.values())
    bounds = {"min": 0, "max": 1} if is_share else {} if panel.least is None else {"min": panel.least}
    line = {"drawStyle": "line", "lineWidth": 2, "fillOpacity": 0, "showPoints": "always", "pointSize": 6}
    defaults = {"unit": "percentunit" if is_share else "none", **bounds, "custom": {**line, "spanNulls": False}}
    source = {"type": "grafana-postgresql-datasource", "uid": "coevo"}
    target = {"refId": "A", "datasource": source, "editorMode": "code", "format": "table", "rawQuery": True}
    return {
        "fieldConfig": {"defaults": defaults, "overrides": [*_overrides(panel)]},
        "targets": [{**target, "rawSql": _query(panel)}],
    }


def _overrides(panel: Panel) -> Iterator[dict[str, Any]]:
    """The look of the columns: the ends of an interval are the edges of a band, and n is only in the tooltip."""

    def override(matcher: str, columns: str, **properties: Any) -> dict[str, Any]:
        named = [{"id": name.replace("_", "."), "value": value} for name, value in properties.items()]
        return {"matcher": {"id": matcher, "options": columns}, "properties": named}

    hidden = {"legend": True, "tooltip": False}
    ends = {"custom_lineWidth": 0, "custom_showPoints": "never", "custom_hideFrom": {"viz": False, **hidden}}
    yield override("byName", "iteration", decimals=0, unit="none", custom_axisLabel="iteration")
    yield override("byRegexp", "/: (lower|upper) end$/", **ends)
    yield override("byRegexp", "/: n$/", unit="none", decimals=0, custom_hideFrom={"viz": True, **hidden})
    for name, figure in panel.lines.items():
        if FIGURES[figure].interval:
            band = {"custom_fillBelowTo": f"{name}: lower end", "custom_fillOpacity": 20}
            yield override("byName", f"{name}: upper end", **band)
    if "estimate" in panel.lines:
        yield override("byName", "estimate", custom_lineStyle={"fill": "dash", "dash": [8, 8]})


def _query(panel: Panel) -> str:
    """The statement with a row for each iteration, and with the columns of each line."""
    names = [f"'{name}'" for name in dict.fromkeys(panel.lines.values())]
    columns = ["iteration"]
    for line, figure in panel.lines.items():
        conditions = [*([f"name = '{figure}'"] if len(names) > 1 else []), *filter(None, [panel.where.get(line)])]
        ends = {"lo": ": lower end", "hi": ": upper end"} if FIGURES[figure].interval else {}
        for column, suffix in {"value": "", **ends, "n": ": n"}.items():
            columns.append(f'max({column}) FILTER (WHERE {" AND ".join(conditions) or "TRUE"}) AS "{line}{suffix}"')
    of_figures = f"name = {names[0]}" if len(names) == 1 else f"name IN ({', '.join(names)})"
    rows = " AND ".join(filter(None, ["run = ${run:sqlstring}", of_figures, panel.only]))
    return f"SELECT {f',{chr(10)}  '.join(columns)}\nFROM series\nWHERE {rows}\nGROUP BY iteration\nORDER BY iteration"


def _json(value: Any, depth: int = 0) -> str:
    """The value as JSON, with what fits into a line on one."""
    flat = json.dumps(value, ensure_ascii=False)
    if (depth and len(flat) + depth < _WIDTH) or not isinstance(value, dict | list) or not value:
        return flat
    items = (
        [f"{json.dumps(name)}: {_json(item, depth + 1)}" for name, item in value.items()]
        if isinstance(value, dict)
        else [_json(item, depth + 1) for item in value]
    )
    begin, end = ("{", "}") if isinstance(value, dict) else ("[", "]")
    inside = ",\n".join(f"{' ' * (depth + 1)}{item}" for item in items)
    return f"{begin}\n{inside}\n{' ' * depth}{end}"
