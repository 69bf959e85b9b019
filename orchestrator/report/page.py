"""The report as a self-contained HTML page: styles and pictures are inline, there is no script and no request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.axes import Axes

from core.files import make_folder, replacing
from core.types import STAGES
from orchestrator.report import charts, table
from orchestrator.report.canvas import COLOURS, as_svg
from orchestrator.report.headline import decisions, details, headline
from orchestrator.report.measures import RunMeasures, measure
from storage.session import Store

_MAX_TEXT = 400  # characters of a question on the page
_MAX_ANSWER = 60
_SHOWN_CLASSES = 4

_TRAINING = (
    ("reward_mean", "reward"),
    ("kl", "KL, nats"),
    ("entropy", "entropy, nats"),
    ("response_length", "length, tokens"),
    ("majority_share", "share of the majority"),
    ("label_accuracy", "right labels"),
    ("labelled_share", "prompts labelled"),
    ("negative_label_accuracy", "accuracy of negative labels"),
    ("positive_labels", "prompts with a label"),
    ("negative_labels", "negative labels"),
    ("same_label_share", "one answer to all"),
    ("right_prompt_share", "prompts with a right rollout"),
    ("right_clusters", "strategies of right rollouts"),
    ("wrong_clusters", "strategies of wrong rollouts"),
    ("right_entropy", "entropy of right rollouts, nats"),
    ("wrong_entropy", "entropy of wrong rollouts, nats"),
)


def write_report(store: Store, run: str, folder: Path) -> Path:
    """Write FOLDER/RUN.html, completely or not at all, and return its path. The run may be in progress.

    Raises `StoreError` when there is no such run.
    """
    measures = measure(store, run)
    make_folder(folder)
    target = folder / f"{run}.html"
    with replacing(target) as temporary:
        temporary.write_text(_render(measures), encoding="utf-8")
    return target


def _render(measures: RunMeasures) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shorten": _shorten, "clock": lambda when: f"{when:%Y-%m-%d %H:%M} UTC"}
    return environment.get_template("page.html.j2").render(
        m=measures,
        config=measures.config,
        headline=headline(measures),
        details=details(measures),
        decisions=decisions(measures),
        pictures=_pictures(measures),
        table=table.table(measures),
        times=table.time_table(measures, STAGES),
        missing=table.MISSING,
        settings=list(_flat(measures.config.model_dump(mode="json"))),
        colours=COLOURS,
        evaluated=any(iteration.accuracy for iteration in measures.iterations),
        max_text=_MAX_TEXT,
        max_answer=_MAX_ANSWER,
        shown_classes=_SHOWN_CLASSES,
    )


def _pictures(measures: RunMeasures) -> dict[str, list[str]]:
    """Section -> its pictures as SVG. Sections without pictures are left out."""
    charts_by_section = {
        "held_out": [charts.accuracy(measures), charts.gain(measures), charts.by_level(measures)],
        "labels": [
            *charts.label_accuracies(measures),
            charts.training_labels(measures),
            charts.ill_posed(measures),
            charts.verdicts(measures),
        ],
        "p_hat": [charts.histogram(measures, iteration) for iteration in measures.iterations],
        "questions": [
            charts.operations(measures),
            charts.operation_counts(measures, kept=False),
            charts.operation_counts(measures, kept=True),
        ],
        "training": [
            charts.training(measures, role, name, f"{role.capitalize()}: {title}")
            for role in measures.config.roles
            for name, title in _TRAINING
        ],
        "time": [charts.seconds(measures, STAGES)],
    }
    pictures = {section: list(_svgs(section, drawn)) for section, drawn in charts_by_section.items()}
    return {section: svgs for section, svgs in pictures.items() if svgs}


def _svgs(section: str, drawn: list[Axes | None]) -> Iterator[str]:
    for i, chart in enumerate(drawn):
        if chart is not None:
            title = chart.get_title(loc="left")
            yield as_svg(chart, f"{section}-{i}", f"{title}. The figures are in the table below.")


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings by their dotted names, as in overrides."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
