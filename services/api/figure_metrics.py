"""The series of an iteration as metrics. A metric has its unit in its name, and comes with its 95% interval and n."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from core.figures import figure_of
from storage.rows import SeriesPoint

_LABELS = ("run", "oracle", "slice")


def figures(series: Mapping[str, Sequence[SeriesPoint]]) -> Iterable[Metric]:
    """The metrics of each run's points, in order of their names.

    An estimate from p_hat has metrics of its own (`…_estimated_…`). So a rule over measured values never sees an
    estimate, and the last measured value stays.
    """
    families: dict[str, GaugeMetricFamily] = {}
    iterations = GaugeMetricFamily(
        "coevo_figure_iteration",
        "The iteration of the figure's latest measured value. It may be older than the run's last iteration, because "
        "not every iteration is audited.",
        labels=(*_LABELS, "figure"),
    )
    for run, point in ((run, point) for run, points in series.items() for point in points):
        figure = figure_of(point.name)
        if figure is None:
            continue
        stem = f"coevo_{figure.stem}" + ("_estimated" if point.estimated else "")
        unit = f"_{figure.unit}" if figure.unit else ""
        name, n_name = f"{stem}{unit}", f"{stem}_{figure.n}"
        origin = "; estimated from p_hat and the audits of other iterations" if point.estimated else ""
        about = f"{figure.text}{origin}; of the latest iteration that has this figure. Its n is {n_name}."
        samples: dict[str, tuple[str, float | None]] = {
            name: (about, point.value),
            f"{stem}_ci_lower{unit}": (f"The lower end of the 95% interval of {name}.", point.lo),
            f"{stem}_ci_upper{unit}": (f"The upper end of the 95% interval of {name}.", point.hi),
            n_name: (f"The number of {figure.of} that {name} rests on.", float(point.n)),
        }
        labels = (run, point.oracle, point.over)
        for metric, (text, value) in samples.items():
            if value is None:
                continue
            if metric not in families:
                families[metric] = GaugeMetricFamily(metric, text, labels=_LABELS)
            families[metric].add_metric(labels, value)
        if not point.estimated:
            iterations.add_metric((*labels, figure.stem), point.iteration)
    yield from (families[name] for name in sorted(families))
    yield iterations
