// Groups the points of the API's series into lines for the charts.
import { countOf, humanise, number } from "./format.js";
import { FIGURES } from "./known_figures.js";

/** @typedef {Schemas["SeriesPoint"]} SeriesPoint */
/** @typedef {{ name: string, oracle: string, over: string, points: SeriesPoint[] }} Series */

/**
 * The series with one name: one for each oracle and each set of questions, with its points sorted by iteration.
 *
 * @param {SeriesPoint[]} seriesPoints
 * @param {string} name
 */
export function seriesNamed(seriesPoints, name) {
  /** @type {Map<string, Series>} */
  const byKey = new Map();
  for (const point of seriesPoints) {
    if (point.name !== name) continue;
    const key = `${point.oracle}/${point.over}`;
    const series = byKey.get(key) ?? { name, oracle: point.oracle, over: point.over, points: [] };
    series.points.push(point);
    byKey.set(key, series);
  }
  for (const series of byKey.values()) series.points.sort((a, b) => a.iteration - b.iteration);
  return [...byKey.values()];
}

/**
 * Label accuracy of the kept questions or, if a run makes its labels in training, of these; null if no label has been
 * graded. `note` says which it is and by which oracle.
 *
 * @param {SeriesPoint[]} seriesPoints
 */
export function labelAccuracy(seriesPoints) {
  const ofKept = seriesNamed(seriesPoints, "label_accuracy").find((series) => series.over === "kept");
  const series = ofKept ?? seriesNamed(seriesPoints, "training_label_accuracy")[0];
  return series ? { ...series, note: `${ofKept ? "kept" : "in training"}, by ${humanise(series.oracle)}` } : null;
}

/** The series with pass@1 of each Solver on the run's benchmark, and what the benchmark is; a run has one of them. */
const BENCHMARKS = {
  held_out: "whose questions are not used in training",
  test_time: "on whose questions it trains, with their answers hidden",
};

/**
 * pass@1 of each Solver on the run's benchmark: held-out, or test-time if the run trains on the benchmark's questions.
 * `points` is empty if nothing has been evaluated.
 *
 * @param {SeriesPoint[]} seriesPoints
 * @param {import("./parts.js").RunConfig} config
 */
export function benchmarkAccuracy(seriesPoints, config) {
  const name = config.prompts?.file === "benchmark" ? "test_time" : "held_out";
  const benchmark = config.evaluation.benchmark.split("/").at(-1);
  const about = `pass@1 of each Solver on the benchmark ${benchmark}, ${BENCHMARKS[name]}.`;
  return { points: seriesNamed(seriesPoints, name)[0]?.points ?? [], title: FIGURES[name].title, about, benchmark };
}

/**
 * Says so if the drift rules do not test the last measured point, because it rests on too few items.
 *
 * @param {SeriesPoint[]} points in order of iteration
 * @param {import("./parts.js").RunConfig} config
 */
export function notTested(points, config) {
  const last = points.filter(({ estimated, lo }) => !estimated && lo !== null).at(-1);
  const least = config.alerts.min_n;
  return last && last.iteration > 0 && last.n < least
    ? ` The drift rules do not test it: n is ${number(last.n)}, and alerts.min_n asks for ${number(least)}.`
    : "";
}

/**
 * Held-out or test-time accuracy, whichever the points have; null if nothing has been evaluated.
 *
 * @param {SeriesPoint[]} seriesPoints
 */
export function evaluatedAccuracy(seriesPoints) {
  for (const name of Object.keys(BENCHMARKS)) {
    const [series] = seriesNamed(seriesPoints, name);
    if (series) return { points: series.points, title: FIGURES[name].title };
  }
  return null;
}

/**
 * The last point of a series that was measured or, if none was, the last estimate.
 *
 * @param {Series | null | undefined} series
 */
export const latestPoint = (series) => series?.points.findLast((point) => !point.estimated) ?? series?.points.at(-1);

/**
 * The points of a chart's lines as rows of a table; ~ marks an estimate. An inherited iteration has its run's name.
 *
 * @param {import("./charts.js").ChartLine[]} lines
 * @param {(value: number | null | undefined) => string} format
 */
export const tableRows = (lines, format) =>
  lines.flatMap((line) =>
    line.points.map((point) => [
      line.name,
      point.inherited_from ? `${point.iteration} of ${point.inherited_from}` : point.iteration,
      `${point.estimated ? "~" : ""}${format(point.value)}`,
      point.lo === null ? "–" : `${format(point.lo)} – ${format(point.hi)}`,
      point.n !== null && point.estimated ? countOf({ ...point, n: point.n }) : point.n,
    ]),
  );
export const TABLE_HEAD = ["series", "iteration", "value", "95% interval", "n"];
