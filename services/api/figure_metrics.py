"""The series of an iteration as metrics. A metric has its unit in its name, and comes with its 95% interval and n."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from core.figures import Figure, figure_of
from storage.rows import SeriesPoint

_LABELS = ("run", "oracle", "slice")


def figures(series: Mapping[str, Sequence[SeriesPoint]]) -> Iterable[Metric]:
    """The metrics of each run's points, in order of their names.

    An estimate from p_hat has metrics of its own (`…_estimated_…`). So a rule over measured values never sees an
    estimate, and the last measured value stays.
    """
    families: dict[str, GaugeMetricFamily] = {}
    for run, points in series.items():
        for point in points:
            figure = figure_of(point.name)
            if figure is None:
                continue
            for name, text, value in _metrics(figure, point):
                if name not in families:
                    families[name] = GaugeMetricFamily(name, text, labels=_LABELS)
                families[name].add_metric((run, point.oracle, point.over), value)
    yield from (families[name] for name in sorted(families))
    yield _iterations(series)


def _metrics(figure: Figure, point: SeriesPoint) -> list[tuple[str, str, float]]:
    """(name, help, value): the figure, the ends of its interval where it has one, and its n."""
    stem = f"coevo_{figure.stem}" + ("_estimated" if point.estimated else "")
    unit = f"_{figure.unit}" if figure.unit else ""
    name, n_name = f"{stem}{unit}", f"{stem}_{figure.n}"
    origin = "; estimated from p_hat and the audits of other iterations" if point.estimated else ""
    help_text = f"{figure.text}{origin}; of the latest iteration that has this figure. Its n is {n_name}."
    samples = [(name, help_text, point.value)]
    for end, bound in (("lower", point.lo), ("upper", point.hi)):
        if bound is not None:
            samples.append((f"{stem}_ci_{end}{unit}", f"The {end} end of the 95% interval of {name}.", bound))
    return [*samples, (n_name, f"The number of {figure.of} that {name} rests on.", float(point.n))]


def _iterations(series: Mapping[str, Sequence[SeriesPoint]]) -> Metric:
    family = GaugeMetricFamily(
        "coevo_figure_iteration",
        "The iteration of the figure's latest measured value. It may be older than the run's last iteration, because "
        "not every iteration is audited.",
        labels=(*_LABELS, "figure"),
    )
    for run, points in series.items():
        for point in points:
            figure = figure_of(point.name)
            if figure is not None and not point.estimated:
                family.add_metric((run, point.oracle, point.over, figure.stem), point.iteration)
    return family
